// The peer of the line's bench: remotedialer between two processes, under the same load as ours
// (benches/line/load.rs). `peer hub ADDRESS DIRECTORY SCENARIO...` or `peer agent ADDRESS DIRECTORY`.
//
// The agent's side answers with connections in memory, so that no other socket is in the way.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	"github.com/sirupsen/logrus"
)

const (
	chunk = 64 << 10
	tiny  = 16
	warm  = 500 * time.Millisecond
	// On a long way windows take this long to grow.
	late  = 4 * time.Second
	stuck = 10 * time.Second
)

func main() {
	logrus.SetLevel(logrus.PanicLevel)
	side, address, directory := os.Args[1], os.Args[2], os.Args[3]
	if side == "agent" {
		agent(address, directory)
		return
	}
	hub(address, directory, os.Args[4:])
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// used is what this process has used so far.
type used struct {
	CPU  float64 `json:"cpu_ns"`
	RSS  float64 `json:"rss_kib"`
	Peak float64 `json:"peak_kib"`
}

func usage() used {
	stat := string(must(os.ReadFile("/proc/self/stat")))
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	ticks := must(strconv.ParseFloat(fields[11], 64)) + must(strconv.ParseFloat(fields[12], 64))
	result := used{CPU: ticks * 1e7}
	for _, line := range strings.Split(string(must(os.ReadFile("/proc/self/status"))), "\n") {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "VmRSS:":
			result.RSS = must(strconv.ParseFloat(words[1], 64))
		case "VmHWM:":
			result.Peak = must(strconv.ParseFloat(words[1], 64))
		}
	}
	return result
}

// memory is a connection whose other side is in this process.
type memory struct {
	service string
	queue   chan []byte
	rest    []byte
	closed  chan struct{}
	once    sync.Once
}

func (m *memory) Read(b []byte) (int, error) {
	if m.service == "d" || m.service == "x" || m.service == "t" {
		select {
		case <-m.closed:
			return 0, io.EOF
		default:
			if m.service == "t" {
				return min(tiny, len(b)), nil
			}
			return len(b), nil
		}
	}
	if len(m.rest) == 0 {
		select {
		case m.rest = <-m.queue:
			if m.rest == nil {
				return 0, io.EOF
			}
		case <-m.closed:
			return 0, io.EOF
		}
	}
	n := copy(b, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

func (m *memory) Write(b []byte) (int, error) {
	if m.service == "e" {
		select {
		case m.queue <- append([]byte(nil), b...):
		case <-m.closed:
			return 0, io.ErrClosedPipe
		}
	}
	return len(b), nil
}

func (m *memory) Close() error                     { m.once.Do(func() { close(m.closed) }); return nil }
func (m *memory) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (m *memory) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (m *memory) SetDeadline(time.Time) error      { return nil }
func (m *memory) SetReadDeadline(time.Time) error  { return nil }
func (m *memory) SetWriteDeadline(time.Time) error { return nil }

func agent(address, directory string) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(filepath.Join(directory, "cert.pem"))))
	dialer := &websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "hub.bench"}}
	local := func(_ context.Context, _, service string) (net.Conn, error) {
		conn := &memory{service: service[:1], queue: make(chan []byte, 16), closed: make(chan struct{})}
		if conn.service == "s" {
			conn.queue <- must(json.Marshal(usage()))
			conn.queue <- nil
		}
		return conn, nil
	}
	allow := func(string, string) bool { return true }
	headers := http.Header{"X-Client": {"agent"}}
	log.Fatal(remotedialer.ConnectToProxyWithDialer(context.Background(), "wss://"+address+"/", headers, allow, dialer, local, nil))
}

func hub(address, directory string, scenario []string) {
	authorize := func(request *http.Request) (string, bool, error) { return request.Header.Get("X-Client"), true, nil }
	server := remotedialer.New(authorize, remotedialer.DefaultErrorWriter)
	listener := must(net.Listen("tcp", address))
	fmt.Println("LISTEN", listener.Addr())
	go func() {
		log.Fatal(http.ServeTLS(listener, server, filepath.Join(directory, "cert.pem"), filepath.Join(directory, "key.pem")))
	}()
	for !server.HasSession("agent") {
		time.Sleep(10 * time.Millisecond)
	}
	load := &load{dial: server.Dialer("agent")}
	number := func(at int) int {
		if at >= len(scenario) {
			return 0
		}
		return must(strconv.Atoi(scenario[at]))
	}
	var result map[string]float64
	switch scenario[0] {
	case "download":
		result = load.throughput("d", number(1), warm, number(2))
	case "upload":
		result = load.throughput("u", number(1), warm, number(2))
	case "late-download":
		result = load.throughput("d", number(1), late, number(2))
	case "late-upload":
		result = load.throughput("u", number(1), late, number(2))
	case "duplex":
		result = load.throughput("x", number(1), warm, number(2))
	case "echo":
		result = load.echo(number(1), number(2))
	case "tiny":
		result = load.tiny(number(1), number(2))
	case "slow":
		result = load.slow(number(1), number(2))
	case "openclose":
		result = load.openClose(number(1), number(2))
	case "cancels":
		result = load.cancels(number(1))
	default:
		log.Fatal("no such scenario: ", scenario[0])
	}
	fmt.Println("RESULT", string(must(json.Marshal(result))))
}

type load struct{ dial remotedialer.Dialer }

func (l *load) open(service string) net.Conn {
	return must(l.dial(context.Background(), "tcp", service+":1"))
}

func (l *load) agent() used {
	conn := l.open("s")
	defer conn.Close()
	var result used
	if err := json.NewDecoder(conn).Decode(&result); err != nil {
		log.Fatal(err)
	}
	return result
}

func (l *load) bulk(service string, streams int) []*atomic.Int64 {
	var counts []*atomic.Int64
	for range streams {
		conn, count := l.open(service), &atomic.Int64{}
		counts = append(counts, count)
		if service == "x" {
			go func() {
				buffer := make([]byte, chunk)
				for {
					n, err := conn.Write(buffer)
					if err != nil {
						return
					}
					count.Add(int64(n))
				}
			}()
		}
		go func() {
			buffer := make([]byte, chunk)
			for {
				var n int
				var err error
				if service != "u" {
					n, err = conn.Read(buffer)
				} else {
					n, err = conn.Write(buffer)
				}
				if err != nil {
					return
				}
				count.Add(int64(n))
			}
		}()
	}
	return counts
}

func values(counts []*atomic.Int64) (result []float64) {
	for _, count := range counts {
		result = append(result, float64(count.Load()))
	}
	return result
}

func sum(values []float64) (result float64) {
	for _, value := range values {
		result += value
	}
	return result
}

func (l *load) throughput(service string, streams int, grow time.Duration, seconds int) map[string]float64 {
	counts := l.bulk(service, streams)
	time.Sleep(grow)
	hub, agent := usage(), l.agent()
	before, start := values(counts), time.Now()
	time.Sleep(time.Duration(seconds) * time.Second)
	after, span := values(counts), time.Since(start).Seconds()
	hubAfter, agentAfter := usage(), l.agent()
	var total, squares float64
	for n := range after {
		moved := after[n] - before[n]
		total += moved
		squares += moved * moved
	}
	return map[string]float64{
		"MB/s":          total / span / 1e6,
		"hub ns/KB":     (hubAfter.CPU - hub.CPU) / total * 1024,
		"agent ns/KB":   (agentAfter.CPU - agent.CPU) / total * 1024,
		"Jain":          total * total / (max(squares, 1) * float64(streams)),
		"hub peak MB":   hubAfter.Peak / 1024,
		"agent peak MB": agentAfter.Peak / 1024,
	}
}

func (l *load) echo(bulk, seconds int) map[string]float64 {
	conn := l.open("e")
	counts := l.bulk("d", bulk)
	time.Sleep(warm)
	before, start := sum(values(counts)), time.Now()
	times := echoes(conn, time.Duration(seconds)*time.Second)
	result := percentiles(times)
	result["bulk MB/s"] = (sum(values(counts)) - before) / time.Since(start).Seconds() / 1e6
	return result
}

func (l *load) slow(streams, seconds int) map[string]float64 {
	conn := l.open("e")
	hub, agent := usage(), l.agent()
	for range streams {
		l.open("d")
	}
	counts := l.bulk("d", 1)
	time.Sleep(warm)
	before, start := sum(values(counts)), time.Now()
	result := percentiles(echoes(conn, time.Duration(seconds)*time.Second))
	result["bulk MB/s"] = (sum(values(counts)) - before) / time.Since(start).Seconds() / 1e6
	hubAfter, agentAfter := usage(), l.agent()
	result["hub MB"] = (hubAfter.RSS - hub.RSS) / 1024
	result["agent MB"] = (agentAfter.RSS - agent.RSS) / 1024
	return result
}

func (l *load) tiny(streams, seconds int) map[string]float64 {
	conn := l.open("e")
	for range streams / 2 {
		l.open("t")
	}
	counts := l.bulk("t", streams/2)
	time.Sleep(warm)
	before, start := sum(values(counts)), time.Now()
	result := percentiles(echoes(conn, time.Duration(seconds)*time.Second))
	result["k frames/s"] = (sum(values(counts)) - before) / tiny / time.Since(start).Seconds() / 1e3
	return result
}

func (l *load) openClose(workers, seconds int) map[string]float64 {
	var done atomic.Int64
	var stop atomic.Bool
	var group sync.WaitGroup
	start := time.Now()
	for range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			buffer := make([]byte, 64)
			for !stop.Load() {
				conn := l.open("e")
				must(conn.Write(buffer))
				must(io.ReadFull(conn, buffer))
				conn.Close()
				done.Add(1)
			}
		}()
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	stop.Store(true)
	group.Wait()
	return map[string]float64{"op/s": float64(done.Load()) / time.Since(start).Seconds()}
}

func (l *load) cancels(count int) map[string]float64 {
	var left atomic.Int64
	left.Store(int64(count))
	var group sync.WaitGroup
	start := time.Now()
	for range 32 {
		group.Add(1)
		go func() {
			defer group.Done()
			buffer := make([]byte, 1024)
			for left.Add(-1) >= 0 {
				conn := l.open("d")
				_, _ = conn.Read(buffer)
				conn.Close()
			}
		}()
	}
	group.Wait()
	span := time.Since(start).Seconds()
	result := percentiles(echoes(l.open("e"), 200*time.Millisecond))
	result["op/s"] = float64(count) / span
	return result
}

// echoes sends 64 bytes to and fro, one after the other; in microseconds.
func echoes(conn net.Conn, span time.Duration) (times []float64) {
	buffer := make([]byte, 64)
	watch := time.AfterFunc(stuck, func() { conn.Close() })
	defer watch.Stop()
	for start := time.Now(); time.Since(start) < span; {
		sent := time.Now()
		_, err := conn.Write(buffer)
		if err == nil {
			_, err = io.ReadFull(conn, buffer)
		}
		if err != nil {
			return append(times, float64(stuck.Microseconds()))
		}
		times = append(times, float64(time.Since(sent).Nanoseconds())/1e3)
		watch.Reset(stuck)
	}
	return times
}

func percentiles(times []float64) map[string]float64 {
	sort.Float64s(times)
	at := func(part int) float64 { return times[min(len(times)*part/1000, len(times)-1)] }
	return map[string]float64{
		"p50 us": at(500), "p99 us": at(990), "max us": at(1000), "echoes": float64(len(times)),
	}
}
