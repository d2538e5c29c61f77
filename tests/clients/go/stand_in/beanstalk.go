// Package beanstalk stands for go-beanstalk where no module proxy can be reached. It has the types and methods of
// go-beanstalk v0.2.0 that the recipe, its test and the documents use, and no others: with it, their programs compile
// and run. That they also run with go-beanstalk itself shows where there is a proxy.
package beanstalk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// ErrTimeout is the error of a Reserve that found no job.
var ErrTimeout = errors.New("timeout")

// Conn is a connection.
type Conn struct {
	socket  io.ReadWriteCloser
	replies *bufio.Reader
	used    string
	watched map[string]bool
}

// Tube is a tube to put jobs into.
type Tube struct {
	Conn *Conn
	Name string
}

// TubeSet is a set of tubes to reserve jobs from.
type TubeSet struct {
	Conn *Conn
	Name map[string]bool
}

// Dial connects.
func Dial(network, address string) (*Conn, error) {
	socket, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return NewConn(socket), nil
}

// NewConn uses a socket.
func NewConn(socket io.ReadWriteCloser) *Conn {
	return &Conn{socket, bufio.NewReader(socket), "default", map[string]bool{"default": true}}
}

// NewTube names a tube.
func NewTube(c *Conn, name string) *Tube { return &Tube{c, name} }

// NewTubeSet names tubes.
func NewTubeSet(c *Conn, names ...string) *TubeSet {
	set := &TubeSet{c, map[string]bool{}}
	for _, name := range names {
		set.Name[name] = true
	}
	return set
}

// Put puts a job into the tube.
func (t *Tube) Put(body []byte, pri uint32, delay, ttr time.Duration) (id uint64, err error) {
	if t.Conn.used != t.Name {
		if _, err := t.Conn.say("USING", "use "+t.Name); err != nil {
			return 0, err
		}
		t.Conn.used = t.Name
	}
	line := fmt.Sprintf("put %d %d %d %d\r\n%s", pri, delay/time.Second, ttr/time.Second, len(body), body)
	_, err = t.Conn.say("INSERTED %d", line, &id)
	return id, err
}

// Reserve waits for a job of the tubes.
func (t *TubeSet) Reserve(timeout time.Duration) (id uint64, body []byte, err error) {
	for name := range t.Name {
		if err := t.Conn.watch("watch", name, true); err != nil {
			return 0, nil, err
		}
	}
	for name := range t.Conn.watched {
		if err := t.Conn.watch("ignore", name, t.Name[name]); err != nil {
			return 0, nil, err
		}
	}
	body, err = t.Conn.say("RESERVED %d", fmt.Sprintf("reserve-with-timeout %d", timeout/time.Second), &id)
	return id, body, err
}

func (c *Conn) watch(command, name string, wanted bool) (err error) {
	if c.watched[name] == wanted {
		return nil
	}
	if _, err = c.say("WATCHING", command+" "+name); err == nil {
		c.watched[name] = wanted
	}
	return err
}

// Release gives a job back.
func (c *Conn) Release(id uint64, pri uint32, delay time.Duration) error {
	_, err := c.say("RELEASED", fmt.Sprintf("release %d %d %d", id, pri, delay/time.Second))
	return err
}

// Bury buries a job.
func (c *Conn) Bury(id uint64, pri uint32) error {
	_, err := c.say("BURIED", fmt.Sprintf("bury %d %d", id, pri))
	return err
}

// Delete deletes a job.
func (c *Conn) Delete(id uint64) error {
	_, err := c.say("DELETED", fmt.Sprintf("delete %d", id))
	return err
}

// StatsJob returns what the server says of a job.
func (c *Conn) StatsJob(id uint64) (map[string]string, error) {
	body, err := c.say("OK", fmt.Sprintf("stats-job %d", id))
	stats := map[string]string{}
	for _, line := range strings.Split(string(body), "\n") {
		if key, value, found := strings.Cut(line, ": "); found {
			stats[key] = value
		}
	}
	return stats, err
}

// Close ends the connection.
func (c *Conn) Close() error { return c.socket.Close() }

// say sends a line, reads the results in the line of the reply, and returns its body.
func (c *Conn) say(expected, line string, results ...any) (body []byte, err error) {
	if _, err := io.WriteString(c.socket, line+"\r\n"); err != nil {
		return nil, err
	}
	reply, err := c.replies.ReadString('\n')
	if err != nil {
		return nil, err
	}
	words := strings.Fields(reply)
	if words[0] == "TIMED_OUT" {
		return nil, ErrTimeout
	}
	if _, err := fmt.Sscanf(reply, expected, results...); err != nil {
		return nil, errors.New("unknown response: " + words[0])
	}
	if words[0] == "OK" || words[0] == "RESERVED" {
		size := 0
		fmt.Sscan(words[len(words)-1], &size) // the last word, in go-beanstalk, too
		body = make([]byte, size+len("\r\n"))
		_, err = io.ReadFull(c.replies, body)
		body = body[:size]
	}
	return body, err
}
