package extended

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// Each addition of extended.go: plain, then with a token, then with a token in TLS.
func TestAdditions(t *testing.T) {
	token := os.Getenv("BEANSTALKD_TOKEN")
	for _, way := range []struct {
		name, port, token string
		secure            *tls.Config
	}{
		{"plain", "PORT", "", nil},
		{"token", "GUARDED_PORT", token, nil},
		{"TLS", "TLS_PORT", token, trusted(t)},
	} {
		t.Run(way.name, func(t *testing.T) {
			conn, err := dial(way.port, way.secure, way.token)
			must(t, err)
			defer conn.Close()
			q := &queue{t, conn}
			must(t, conn.Say("WATCHING 2", "watch work"))
			must(t, conn.Say("WATCHING 1", "ignore default"))
			q.tags()
			q.batches()
			q.fields()
			q.inTurn()
			q.tubes()
		})
	}
}

func TestCertificateOfTheClient(t *testing.T) {
	pair, err := tls.LoadX509KeyPair(os.Getenv("BEANSTALKD_CERTIFICATE"), os.Getenv("BEANSTALKD_KEY"))
	must(t, err)
	secure := trusted(t)
	secure.Certificates = []tls.Certificate{pair}
	conn, err := dial("MUTUAL_PORT", secure, "")
	must(t, err)
	_, err = conn.Put("default", []byte("x"), 0, 0, time.Minute)
	must(t, err)
}

// What a new connection uses and watches by itself needs no right.
func TestRightsToOneTube(t *testing.T) {
	conn, err := dial("GUARDED_PORT", nil, os.Getenv("BEANSTALKD_TOKEN_FOR_MAIL"))
	must(t, err)
	put, err := conn.Put("mail", []byte("to: ann"), 0, 0, time.Minute)
	must(t, err)
	must(t, conn.Say("WATCHING 1", "watch mail"))
	jobs, err := conn.ReserveBatch(1, 0)
	must(t, err)
	equal(t, put.ID, jobs[0].ID)
	must(t, conn.Delete(put.ID))
	_, err = conn.Put("orders", nil, 0, 0, time.Minute)
	equal(t, ReplyError("FORBIDDEN"), err)
}

func TestRefusals(t *testing.T) {
	anonymous, err := dial("GUARDED_PORT", nil, "")
	must(t, err)
	equal(t, ReplyError("FORBIDDEN"), anonymous.Say("FLUSHED 0", "flush-tube work"))
	_, err = dial("GUARDED_PORT", nil, fmt.Sprintf("%040d", 0))
	equal(t, ReplyError("UNAUTHORIZED"), err)
	var unknown x509.UnknownAuthorityError
	if _, err = dial("TLS_PORT", &tls.Config{}, ""); !errors.As(err, &unknown) {
		t.Fatalf("an unknown authority expected, but got %v", err)
	}
}

type queue struct {
	*testing.T
	conn *Conn
}

func (q *queue) put(body string, tags ...string) Job {
	job, err := q.conn.Put("work", []byte(body), 1024, 0, time.Minute, tags...)
	must(q, err)
	return job
}

func (q *queue) batch(n int) []Job {
	jobs, err := q.conn.ReserveBatch(n, 0)
	must(q, err)
	return jobs
}

// deletes checks how many of the jobs are deleted, and how many are not found.
func (q *queue) deletes(deleted, missing int, jobs ...Job) {
	d, m, err := q.conn.DeleteBatch(jobs)
	must(q, err)
	equal(q, [2]int{deleted, missing}, [2]int{d, m})
}

func (q *queue) tags() {
	first := q.put("a", "idp:order-7", "exp:3600")
	again, err := q.conn.Put("work", []byte("a"), 7, 0, time.Minute, "idp:order-7") // the reply has the priority, too
	must(q, err)
	equal(q, "", first.State)
	equal(q, "READY", again.State)
	equal(q, first.ID, again.ID)
	for _, tag := range []string{"idp:a exp:60", "idp:a\r\nkey", "idp:a\nkey"} {
		_, err := q.conn.Put("work", nil, 0, 0, 0, tag)
		if _, isReply := err.(ReplyError); err == nil || isReply {
			q.Fatalf("%q was sent", tag)
		}
	}
	equal(q, "", q.put("put 1 2 3 4\r\n").State)
	q.put("one at a time", "con:customer-9")
	q.put("one at a time", "con:customer-9")
	equal(q, 3, len(q.batch(10))) // of four
	must(q, q.conn.Say("TOUCHED_ALL 3", "touch-all"))
	must(q, q.conn.Say("SESSION 3", "session night 0"))
	must(q, q.conn.Say("FLUSHED 4", "flush-tube work"))
	member := q.put("member", "grp:import")
	after := q.put("after", "aft:import")
	equal(q, member.ID, q.batch(10)[0].ID)
	q.deletes(0, 0)
	q.deletes(1, 0, member)
	equal(q, after.ID, q.batch(1)[0].ID)
	q.deletes(1, 0, after)
}

func (q *queue) batches() {
	large := string(bytes.Repeat([]byte("x"), 60000)) // more than comes at once
	var put []Job
	for n := 0; n < 5; n++ {
		put = append(put, q.put(fmt.Sprint(n, large), "exp:3600"))
	}
	jobs := q.batch(3)
	for n, job := range jobs {
		equal(q, put[n].ID, job.ID)
		equal(q, fmt.Sprint(n, large), string(job.Body))
	}
	q.deletes(4, 1, append(jobs, put[4], Job{ID: 1e9})...)
	q.deletes(1, 0, q.batch(3)...)
	_, err := q.conn.ReserveBatch(3, 0)
	equal(q, ReplyError("TIMED_OUT"), err)
}

func (q *queue) fields() {
	must(q, q.conn.Say("USING", "reserve-fields tube attempts"))
	first, second := q.put("one 9"), q.put("two")
	jobs := q.batch(2)
	for n, job := range []Job{first, second} {
		equal(q, string(job.Body), string(jobs[n].Body))
		equal(q, "[work 1]", fmt.Sprint(jobs[n].Fields))
	}
	must(q, q.conn.Release(first.ID, 1024, 0))
	equal(q, "[work 2]", fmt.Sprint(q.batch(1)[0].Fields))
	stats, err := q.conn.StatsJob(second.ID)
	must(q, err)
	equal(q, "reserved", stats["state"])
	q.deletes(2, 0, jobs...)
	must(q, q.conn.Say("USING", "reserve-fields"))
}

// inTurn uses the recipe and the methods of go-beanstalk on one connection.
func (q *queue) inTurn() {
	theirs := &beanstalk.Tube{Conn: q.conn.Conn, Name: "other"}
	from := beanstalk.NewTubeSet(q.conn.Conn, "other", "work")
	id, err := theirs.Put([]byte("one"), 0, 0, time.Minute)
	must(q, err)
	ours := q.put("two")
	for _, expected := range []uint64{id, ours.ID} {
		reserved, _, err := from.Reserve(0)
		must(q, err)
		equal(q, expected, reserved)
	}
	q.deletes(2, 0, ours, Job{ID: id})
	must(q, q.conn.Say("WATCHING 1", "ignore other"))
}

func (q *queue) tubes() {
	twin := q.put("a", "idp:twin")
	must(q, q.conn.Say("MOVED", fmt.Sprintf("move %d other", twin.ID)))
	second := q.put("a", "idp:twin")
	equal(q, ReplyError(fmt.Sprint("EXISTS ", twin.ID)), q.conn.Say("MOVED", fmt.Sprintf("move %d other", second.ID)))
	must(q, q.conn.Say("WATCHING 2", "watch other 5"))
	equal(q, 2, len(q.batch(2)))
	must(q, q.conn.Say("USING", "reserve-mode weighted"))
	must(q, q.conn.Say("USING", "reserve-mode fifo"))
	must(q, q.conn.Bury(second.ID, 1))
	must(q, q.conn.Say("FLUSHED 1", "flush-buried work"))
	must(q, q.conn.Say("FLUSHED 1", "flush-tube other"))
}

// dial connects to a server of servers.py, with TLS if secure is not nil.
func dial(port string, secure *tls.Config, token string) (*Conn, error) {
	socket, err := net.Dial("tcp", "127.0.0.1:"+os.Getenv("BEANSTALKD_"+port))
	if secure != nil {
		socket, err = tls.Dial("tcp", "127.0.0.1:"+os.Getenv("BEANSTALKD_"+port), secure)
	}
	if err != nil {
		return nil, err
	}
	return NewConn(socket, token)
}

func trusted(t *testing.T) *tls.Config {
	pem, err := os.ReadFile(os.Getenv("BEANSTALKD_CA"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: roots}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t testing.TB, expected, actual any) {
	t.Helper()
	if expected != actual {
		t.Fatalf("expected %v, but got %v", expected, actual)
	}
}
