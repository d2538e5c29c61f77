// Package extended is go-beanstalk with what this server adds to the protocol: TLS, log-in, tags of put, fields,
// batches, sessions.
//
// Copy this file into your module. It needs github.com/beanstalkd/go-beanstalk v0.2.0, and nothing else:
//
//	conn, err := extended.Dial("queue.example.org:11301", &tls.Config{}, token)
//	job, err := conn.Put("orders", body, 1024, 0, time.Minute, "idp:order-7", "exp:3600")
//	jobs, err := conn.ReserveBatch(beanstalk.NewTubeSet(conn.Conn, "orders"), 100, 5*time.Second)
//	deleted, missing, err := conn.DeleteBatch(jobs)
//	err = conn.Say("SESSION %d", "session night 60", &held) // say it again on each new connection
//	err = conn.Say("FLUSHED %d", "flush-tube orders", &n)
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
	"strconv"
	"strings"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// Job is a reserved job, or one that was put. State is empty, or the state of the job that had the same idempotency
// key: READY, RESERVED, DELAYED, BURIED or DELETED.
type Job struct {
	ID     uint64
	Body   []byte
	State  string
	Fields []string // the values of what "reserve-fields" has asked for
}

// ReplyError is a reply that was not asked for, such as FORBIDDEN, UNAUTHORIZED, EXISTS 7 or NOT_FOUND.
type ReplyError string

func (e ReplyError) Error() string { return "the server replied " + string(e) }

// Conn has all that go-beanstalk's Conn has.
type Conn struct {
	*beanstalk.Conn
	wire *wire
}

// wire is what go-beanstalk talks through. It cuts off what go-beanstalk cannot read: the fields behind a size.
type wire struct {
	net.Conn
	replies       *bufio.Reader
	unread        io.Reader // what go-beanstalk has not read of the last reply
	words, fields []string  // of the last reply
	size          int64     // of the body behind them
}

func (w *wire) Read(p []byte) (int, error) {
	if n, err := w.unread.Read(p); err != io.EOF {
		return n, err
	}
	if err := w.next(); err != nil {
		return 0, err
	}
	line := strings.NewReader(strings.Join(w.words, " ") + "\r\n")
	w.unread = io.MultiReader(line, io.LimitReader(w.replies, w.size))
	return w.unread.Read(p)
}

// next reads the line of a reply.
func (w *wire) next() error {
	line, err := w.replies.ReadString('\n')
	w.words, w.fields, w.size = append(strings.Fields(line), ""), nil, 0
	at := map[string]int{"OK": 1, "FOUND": 2, "RESERVED": 2}[w.words[0]]
	end := len(w.words) - 1
	if err == nil && at > 0 && at < end {
		var size uint64
		size, err = strconv.ParseUint(w.words[at], 10, 31)
		w.size = int64(size) + int64(len("\r\n"))
		w.fields, end = w.words[at+1:end], at+1
	}
	w.words = w.words[:end]
	return err
}

// Dial connects, with TLS if secure is not nil, and logs in if the token is not empty.
func Dial(address string, secure *tls.Config, token string) (*Conn, error) {
	dialer := &net.Dialer{Timeout: beanstalk.DefaultDialTimeout, KeepAlive: beanstalk.DefaultKeepAlivePeriod}
	dial := dialer.Dial
	if secure != nil {
		dial = (&tls.Dialer{NetDialer: dialer, Config: secure}).Dial
	}
	socket, err := dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c := &Conn{wire: &wire{Conn: socket, replies: bufio.NewReader(socket), unread: strings.NewReader("")}}
	if token != "" {
		if err := c.Say("AUTHENTICATED", "auth "+token); err != nil {
			socket.Close()
			return nil, err
		}
	}
	c.Conn = beanstalk.NewConn(c.wire)
	return c, nil
}

// Put puts a job into a tube, with tags: "idp:order-7" or "idp:order-7:60", "con:customer-9:2", "grp:import",
// "aft:import", "exp:3600".
func (c *Conn) Put(tube string, body []byte, pri uint32, delay, ttr time.Duration, tags ...string) (Job, error) {
	line := fmt.Sprintf("put %d %d %d %d", pri, delay/time.Second, ttr/time.Second, len(body))
	for _, tag := range append(tags, "tub:"+tube) {
		if strings.ContainsAny(tag, " \r\n") {
			return Job{}, fmt.Errorf("not a tag for the server: %q", tag)
		}
		line += " " + tag
	}
	job := Job{Body: body}
	err := c.exchange("INSERTED %d", line+"\r\n"+string(body), &job.ID)
	if err == nil && len(c.wire.words) > 2 {
		job.State = c.wire.words[2]
	}
	return job, err
}

// ReserveBatch waits for a job as tubes.Reserve does, and takes up to n-1 others with it.
func (c *Conn) ReserveBatch(tubes *beanstalk.TubeSet, n int, timeout time.Duration) ([]Job, error) {
	id, body, err := tubes.Reserve(timeout)
	if err != nil {
		return nil, err
	}
	jobs := []Job{{ID: id, Body: body, Fields: c.wire.fields}}
	if n > 1 {
		err = c.Say("RESERVED_BATCH %d", fmt.Sprintf("reserve-batch %d", n-1), &n)
		for ; err == nil && n > 0; n-- {
			var job Job
			if err = c.reply("RESERVED %d", &job.ID); err == nil {
				job.Body, job.Fields = make([]byte, c.wire.size), c.wire.fields
				_, err = io.ReadFull(c.wire.replies, job.Body)
				job.Body = bytes.TrimSuffix(job.Body, []byte("\r\n"))
				jobs = append(jobs, job)
			}
		}
	}
	return jobs, err
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

// Say sends any other command that has a line for an answer, and scans the answer:
//
//	conn.Say("USING", "reserve-fields attempts age") // from now on, jobs that are reserved have Fields
//	conn.Say("MOVED", fmt.Sprintf("move %d orders", id))
//	conn.Say("WATCHING %d", "watch orders 5", &n) // a weight: tubes of a TubeSet are watched from its first Reserve on
func (c *Conn) Say(reply, line string, results ...any) error {
	if strings.ContainsAny(line, "\r\n") {
		return fmt.Errorf("not a line: %q", line)
	}
	return c.exchange(reply, line, results...)
}

func (c *Conn) exchange(reply, sent string, results ...any) error {
	if _, err := io.WriteString(c.wire, sent+"\r\n"); err != nil {
		return err
	}
	return c.reply(reply, results...)
}

func (c *Conn) reply(format string, results ...any) error {
	if err := c.wire.next(); err != nil {
		return err
	}
	line := strings.Join(c.wire.words, " ")
	if _, err := fmt.Sscanf(line, format, results...); err != nil {
		return ReplyError(line)
	}
	return nil
}
