// Package extended is go-beanstalk with what this server adds to the protocol: TLS, log-in, tags of put, fields,
// batches, sessions. Copy this file into your module. It needs go-beanstalk v0.2.0, and nothing else:
//
//	socket, err := tls.Dial("tcp", "queue.example.org:11301", nil) // or net.Dial
//	conn, err := extended.NewConn(socket, token)
//	job, err := conn.Put("orders", body, 1024, 0, time.Minute, "idp:order-7", "exp:3600")
//	jobs, err := conn.ReserveBatch(beanstalk.NewTubeSet(conn.Conn, "orders"), 100, 5*time.Second)
//	deleted, missing, err := conn.DeleteBatch(jobs)
package extended

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// Conn has all that go-beanstalk's Conn has. It is for one goroutine at a time.
type Conn struct {
	*beanstalk.Conn
	wire *wire
}

// Job is a reserved job, or one that was put. State is that of the job that Put has found with the same idempotency
// key: READY, RESERVED, DELETED and so on. Fields are the values of what "reserve-fields" has asked for.
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
	w := &wire{ReadWriteCloser: socket, replies: bufio.NewReader(socket)}
	c := &Conn{beanstalk.NewConn(w), w}
	if token == "" {
		return c, nil
	}
	return c, c.Say("AUTHENTICATED", "auth "+token)
}

// Put takes tags: "idp:order-7" or "idp:order-7:60", "con:customer-9:2", "grp:import", "aft:import", "exp:3600".
func (c *Conn) Put(tube string, body []byte, pri uint32, delay, ttr time.Duration, tags ...string) (Job, error) {
	line := fmt.Sprintf("put %d %d %d %d", pri, delay/time.Second, ttr/time.Second, len(body))
	for _, tag := range append([]string{"tub:" + tube}, tags...) {
		if strings.Contains(tag, " ") { // it would be two
			return Job{}, fmt.Errorf("not a tag for the server: %q", tag)
		}
		line += " " + tag
	}
	job := Job{Body: body}
	err := c.say("INSERTED %d", line, "\r\n"+string(body), &job.ID)
	fmt.Sscanf(c.wire.line, "INSERTED %d %s", &job.ID, &job.State)
	return job, err
}

// ReserveBatch waits for a job as tubes.Reserve does, and takes up to n-1 others with it.
func (c *Conn) ReserveBatch(tubes *beanstalk.TubeSet, n int, timeout time.Duration) ([]Job, error) {
	_, _, err := tubes.Reserve(timeout)
	if err != nil {
		return nil, err
	}
	jobs, more := []Job{c.wire.job}, 0
	if n > 1 {
		err = c.Say("RESERVED_BATCH %d", fmt.Sprint("reserve-batch ", n-1), &more)
	}
	for ; err == nil && more > 0; more-- {
		err = c.wire.next()
		jobs = append(jobs, c.wire.job)
	}
	return jobs, err
}

// DeleteBatch returns how many jobs were deleted, and how many were not found.
func (c *Conn) DeleteBatch(jobs []Job) (deleted, missing int, err error) {
	line := "delete-batch"
	for _, job := range jobs {
		line += fmt.Sprint(" ", job.ID)
	}
	err = c.Say("DELETED_BATCH %d %d", line, &deleted, &missing)
	return
}

// Say sends any other command, and scans its reply:
//
//	err := conn.Say("SESSION %d", "session night 60", &held) // again on each new connection
//	err := conn.Say("USING", "reserve-fields attempts age")  // jobs that are reserved later have Fields
//	err := conn.Say("WATCHING %d", "watch orders 5", &n)     // a weight, after the first Reserve of a TubeSet
func (c *Conn) Say(reply, line string, results ...any) error {
	return c.say(reply, line, "", results...)
}

func (c *Conn) say(reply, line, body string, results ...any) error {
	if strings.ContainsAny(line, "\r\n") {
		return fmt.Errorf("not a line: %q", line)
	}
	if _, err := io.WriteString(c.wire, line+body+"\r\n"); err != nil {
		return err
	}
	if err := c.wire.next(); err != nil {
		return err
	}
	if _, err := fmt.Sscanf(c.wire.line, reply, results...); err != nil {
		return ReplyError(c.wire.line)
	}
	return nil
}

// wire reads replies, also for go-beanstalk, which cannot read the fields behind the size of a job.
type wire struct {
	io.ReadWriteCloser
	replies *bufio.Reader
	line    string // the last reply, up to the size
	job     Job    // what else is in it
	unread  bytes.Buffer
}

var sized = regexp.MustCompile(`^(?:OK|FOUND \d+|RESERVED (\d+)) (\d{1,9})\b`)

func (w *wire) next() error {
	line, err := w.replies.ReadString('\n')
	w.line, w.job = strings.TrimSpace(line), Job{}
	if found := sized.FindStringSubmatch(w.line); found != nil && err == nil {
		w.job.Fields = strings.Fields(w.line[len(found[0]):])
		w.job.ID, _ = strconv.ParseUint(found[1], 10, 64)
		size, _ := strconv.Atoi(found[2])
		w.line, w.job.Body = found[0], make([]byte, size+len("\r\n"))
		_, err = io.ReadFull(w.replies, w.job.Body)
		w.job.Body = w.job.Body[:size]
	}
	return err
}

func (w *wire) Read(p []byte) (int, error) {
	if w.unread.Len() == 0 {
		if err := w.next(); err != nil {
			return 0, err
		}
		fmt.Fprintf(&w.unread, "%s\r\n", w.line)
		if w.job.Body != nil {
			fmt.Fprintf(&w.unread, "%s\r\n", w.job.Body)
		}
	}
	return w.unread.Read(p)
}
