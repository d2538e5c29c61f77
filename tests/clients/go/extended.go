// Package extended is go-beanstalk with what this server adds to the protocol: TLS, log-in, tags of put, batches,
// weights, whole tubes.
//
// Copy this file into your module. It needs github.com/beanstalkd/go-beanstalk v0.2.0, and nothing else:
//
//	conn, err := extended.Dial("queue.example.org:11301", &tls.Config{}, token)
//	orders := beanstalk.NewTube(conn.Conn, "orders")
//	job, err := conn.Put(orders, body, 1024, 0, time.Minute, extended.Tags{"idp": "order-7", "exp": "3600"})
//	jobs, err := conn.ReserveBatch(beanstalk.NewTubeSet(conn.Conn, "orders"), 100, 5*time.Second)
//	deleted, missing, err := conn.DeleteBatch(jobs)
//
// The methods here and those of the embedded Conn are for one goroutine at a time.
package extended

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// Tags of a job: "idp": "order-7" or "order-7:60", "con": "customer-9:2", "grp": "g", "aft": "g", "exp": "3600".
type Tags map[string]string

// Job is a reserved job, or one that was put. State is empty, or the state of the job that had the same idempotency
// key: READY, RESERVED, DELAYED, BURIED or DELETED.
type Job struct {
	ID    uint64
	Body  []byte
	State string
}

// ReplyError is a reply that was not asked for, such as FORBIDDEN, UNAUTHORIZED, EXISTS 7 or NOT_FOUND.
type ReplyError string

func (e ReplyError) Error() string { return "the server replied " + string(e) }

// Conn has all that go-beanstalk's Conn has.
type Conn struct {
	*beanstalk.Conn
	wire    *wire
	replies *bufio.Reader
}

// wire adds tags to the line of put that is written next, and keeps the reply, which go-beanstalk reads up to the id.
type wire struct {
	net.Conn
	tags string
	seen *bytes.Buffer
}

var word = regexp.MustCompile(`^[-+/;.$_()A-Za-z0-9:]+$`)

// Dial connects, with TLS if secure is not nil, and logs in if the token is not empty.
func Dial(address string, secure *tls.Config, token string) (*Conn, error) {
	dialer := &net.Dialer{Timeout: beanstalk.DefaultDialTimeout, KeepAlive: beanstalk.DefaultKeepAlivePeriod}
	var socket net.Conn
	var err error
	if secure != nil {
		socket, err = tls.DialWithDialer(dialer, "tcp", address, secure)
	} else {
		socket, err = dialer.Dial("tcp", address)
	}
	if err != nil {
		return nil, err
	}
	c := &Conn{wire: &wire{Conn: socket}, replies: bufio.NewReader(socket)}
	if token != "" {
		if err := c.Say("AUTHENTICATED", "auth "+token); err != nil {
			socket.Close()
			return nil, err
		}
	}
	c.Conn = beanstalk.NewConn(c.wire)
	return c, nil
}

func (w *wire) Write(p []byte) (int, error) {
	if w.tags == "" {
		return w.Conn.Write(p)
	}
	start := 0
	if bytes.HasPrefix(p, []byte("use ")) {
		start = bytes.IndexByte(p, '\n') + 1
	}
	end := start + bytes.IndexByte(p[start:], '\r')
	tagged := append(append(append([]byte{}, p[:end]...), w.tags...), p[end:]...)
	w.tags = ""
	if _, err := w.Conn.Write(tagged); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.seen != nil {
		w.seen.Write(p[:n])
	}
	return n, err
}

// Put is tube.Put with tags.
func (c *Conn) Put(tube *beanstalk.Tube, body []byte, pri uint32, delay, ttr time.Duration, tags Tags) (Job, error) {
	for tag, value := range tags {
		if !word.MatchString(tag) || !word.MatchString(value) {
			return Job{}, fmt.Errorf("not a tag for the server: %q", tag+":"+value)
		}
		c.wire.tags += " " + tag + ":" + value
	}
	c.wire.seen = &bytes.Buffer{}
	defer func() { c.wire.tags, c.wire.seen = "", nil }()
	id, err := tube.Put(body, pri, delay, ttr)
	job := Job{ID: id, Body: body}
	lines := strings.Split(strings.TrimSpace(c.wire.seen.String()), "\n")
	if words := strings.Fields(lines[len(lines)-1]); err == nil && len(words) > 2 {
		job.State = words[2]
	}
	return job, err
}

// ReserveBatch waits for the first job as tubes.Reserve does, and takes up to n-1 others with it.
func (c *Conn) ReserveBatch(tubes *beanstalk.TubeSet, n int, timeout time.Duration) ([]Job, error) {
	id, body, err := tubes.Reserve(timeout)
	if err != nil {
		return nil, err
	}
	jobs := []Job{{ID: id, Body: body}}
	if n <= 1 {
		return jobs, nil
	}
	var count int
	if err := c.Say("RESERVED_BATCH %d", fmt.Sprintf("reserve-batch %d", n-1), &count); err != nil {
		return jobs, err
	}
	for ; count > 0; count-- {
		var job Job
		var size int
		if err := c.reply("RESERVED %d %d", &job.ID, &size); err != nil {
			return jobs, err
		}
		job.Body = make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(c.replies, job.Body); err != nil {
			return jobs, err
		}
		job.Body = job.Body[:size]
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// DeleteBatch returns how many jobs were deleted, and how many were not found.
func (c *Conn) DeleteBatch(jobs []Job) (deleted, missing int, err error) {
	line := "delete-batch"
	for _, job := range jobs {
		line += fmt.Sprintf(" %d", job.ID)
	}
	err = c.Say("DELETED_BATCH %d %d", line, &deleted, &missing)
	return deleted, missing, err
}

// TouchAll touches all jobs that this client has reserved.
func (c *Conn) TouchAll() (n int, err error) {
	err = c.Say("TOUCHED_ALL %d", "touch-all", &n)
	return n, err
}

// FlushTube deletes all jobs of a tube, those that are reserved included.
func (c *Conn) FlushTube(tube string) (n int, err error) {
	err = c.Say("FLUSHED %d", "flush-tube "+tube, &n)
	return n, err
}

// Say sends any other command that has a line for an answer, and scans the answer:
//
//	conn.Say("FLUSHED %d", "flush-buried orders", &n)
//	conn.Say("MOVED", fmt.Sprintf("move %d orders", id))
//	conn.Say("WATCHING %d", "watch orders 5", &n) // a weight: tubes of a TubeSet are watched from its first Reserve on
//	conn.Say("USING", "reserve-mode weighted")
func (c *Conn) Say(reply, line string, results ...any) error {
	if strings.ContainsAny(line, "\r\n") {
		return fmt.Errorf("not a line: %q", line)
	}
	if _, err := io.WriteString(c.wire.Conn, line+"\r\n"); err != nil {
		return err
	}
	return c.reply(reply, results...)
}

func (c *Conn) reply(format string, results ...any) error {
	line, err := c.replies.ReadString('\n')
	if err != nil {
		return err
	}
	if _, err := fmt.Sscanf(line, format, results...); err != nil {
		return ReplyError(strings.TrimSpace(line))
	}
	return nil
}
