// Package extended is go-beanstalk with what this server adds to the protocol: TLS, log-in, tags of put, fields,
// batches, sessions. Copy this file into your module. It needs go-beanstalk v0.2.0, and nothing else:
//
//	socket, err := tls.Dial("tcp", "queue.example.org:11301", nil) // or net.Dial
//	conn, err := extended.NewConn(socket, token)
//	job, err := conn.Put("orders", body, 1024, 0, time.Minute, "idp:order-7", "exp:3600")
//	err = conn.Say("WATCHING", "watch orders")
//	jobs, err := conn.ReserveBatch(100, 5*time.Second)
//	deleted, missing, err := conn.DeleteBatch(jobs)
package extended

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// Conn has all that go-beanstalk's Conn has, for one goroutine at a time. Reserve with it by ReserveBatch, or by the
// TubeSets of go-beanstalk, which watch other tubes by themselves and cannot read fields.
type Conn struct {
	*beanstalk.Conn
	socket  io.Writer
	replies *bufio.Reader
	reply   string // the last one
}

// Job is a reserved job, with the values of what "reserve-fields" has asked for, or a job that was put. State is that
// of the job that Put has found with the same idempotency key: READY, RESERVED, DELETED and so on.
type Job struct {
	ID     uint64
	Body   []byte
	State  string
	Fields []string
}

// ReplyError is a reply that was not expected, such as FORBIDDEN, EXISTS 7 or NOT_FOUND.
type ReplyError string

func (e ReplyError) Error() string { return "the server replied " + string(e) }

// NewConn uses a socket, and logs in if the token is not empty.
func NewConn(socket io.ReadWriteCloser, token string) (*Conn, error) {
	c := &Conn{Conn: beanstalk.NewConn(socket), socket: socket, replies: bufio.NewReader(socket)}
	if token == "" {
		return c, nil
	}
	return c, c.Say("AUTHENTICATED", "auth "+token)
}

// Put takes tags: "idp:order-7" or "idp:order-7:60", "con:customer-9:2", "grp:import", "aft:import", "exp:3600".
func (c *Conn) Put(tube string, body []byte, pri uint32, delay, ttr time.Duration, tags ...string) (Job, error) {
	line := fmt.Sprintf("put %d %d %d %d", pri, delay/time.Second, ttr/time.Second, len(body))
	for _, tag := range append([]string{"tub:" + tube}, tags...) {
		if strings.ContainsAny(tag, " \r\n") { // it would change the command
			return Job{}, fmt.Errorf("not a tag: %q", tag)
		}
		line += " " + tag
	}
	job := Job{Body: body}
	err := c.Say("INSERTED %d", line+"\r\n"+string(body), &job.ID)
	fmt.Sscanf(c.reply, "INSERTED %d %s", &job.ID, &job.State)
	return job, err
}

// ReserveBatch waits for a job of the watched tubes, and takes up to n. Without a job, the error is TIMED_OUT.
func (c *Conn) ReserveBatch(n int, timeout time.Duration) (jobs []Job, err error) {
	left, line := 0, fmt.Sprintf("reserve-batch %d %d", n, timeout/time.Second)
	for err = c.Say("RESERVED_BATCH %d", line, &left); left > 0 && err == nil; left-- {
		var job Job
		job, err = c.next()
		jobs = append(jobs, job)
	}
	return
}

// DeleteBatch returns how many jobs were deleted, and how many were not found.
func (c *Conn) DeleteBatch(jobs []Job) (deleted, missing int, err error) {
	if len(jobs) == 0 {
		return
	}
	line := "delete-batch"
	for _, job := range jobs {
		line += fmt.Sprint(" ", job.ID)
	}
	err = c.Say("DELETED_BATCH %d %d", line, &deleted, &missing)
	return
}

// Say sends any other command, and scans its reply: conn.Say("SESSION %d", "session night 60", &held). After
// conn.Say("USING", "reserve-fields attempts age"), reserved jobs have Fields. Say both on each new connection.
func (c *Conn) Say(reply, line string, results ...any) error {
	if _, err := io.WriteString(c.socket, line+"\r\n"); err != nil {
		return err
	}
	if _, err := c.next(); err != nil {
		return err
	}
	if _, err := fmt.Sscanf(c.reply, reply, results...); err != nil {
		return ReplyError(c.reply)
	}
	return nil
}

// next reads a reply, and the job in it.
func (c *Conn) next() (job Job, err error) {
	line, err := c.replies.ReadString('\n')
	c.reply = strings.TrimSpace(line)
	size := 0
	if n, _ := fmt.Sscanf(line, "RESERVED %d %d", &job.ID, &size); n == 2 && err == nil {
		body := make([]byte, size+len("\r\n"))
		_, err = io.ReadFull(c.replies, body)
		job.Body, job.Fields = body[:size], strings.Fields(line)[3:]
	}
	return
}
