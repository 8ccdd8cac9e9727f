// Package load is what the ends of every peer do: the same as ours (benches/line/load.rs).
//
// A stream is of a service: `d` an endless download, `u` an upload that is thrown away, `x` both at once, `t` an endless
// download of 16 bytes at a time, `e` an echo, `s` what the agent's process has used so far.
package load

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Chunk is how much bulk is read and written at a time.
	Chunk = 64 << 10
	// Tiny is the same for `t`.
	Tiny = 16

	warm = 500 * time.Millisecond
	// On a long way windows take this long to grow.
	late  = 4 * time.Second
	stuck = 10 * time.Second
)

// Run measures a scenario on streams that open makes, and prints what came of it.
func Run(open func(service byte) net.Conn, scenario []string) {
	l := load{open}
	number := func(at int) int {
		if at >= len(scenario) {
			return 0
		}
		return Must(strconv.Atoi(scenario[at]))
	}
	var result map[string]float64
	switch scenario[0] {
	case "download":
		result = l.throughput('d', number(1), warm, number(2))
	case "upload":
		result = l.throughput('u', number(1), warm, number(2))
	case "late-download":
		result = l.throughput('d', number(1), late, number(2))
	case "late-upload":
		result = l.throughput('u', number(1), late, number(2))
	case "duplex":
		result = l.throughput('x', number(1), warm, number(2))
	case "echo":
		result = l.echo(number(1), number(2))
	case "tiny":
		result = l.tiny(number(1), number(2))
	case "slow":
		result = l.slow(number(1), number(2))
	case "openclose":
		result = l.openClose(number(1), number(2))
	case "cancels":
		result = l.cancels(number(1))
	default:
		log.Fatal("no such scenario: ", scenario[0])
	}
	fmt.Println("RESULT", string(Must(json.Marshal(result))))
}

type load struct{ open func(service byte) net.Conn }

// Await looks until something is so, for half a minute at most.
func Await(what string, so func() bool) {
	end := time.Now().Add(30 * time.Second)
	for !so() {
		if time.Now().After(end) {
			log.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (l load) agent() Used {
	conn := l.open('s')
	defer conn.Close()
	var result Used
	if err := json.NewDecoder(conn).Decode(&result); err != nil {
		log.Fatal(err)
	}
	return result
}

// hold opens streams that nobody reads, until the answer is called; a socket that nobody holds would be closed by the runtime.
func (l load) hold(service byte, streams int) func() {
	var unread []net.Conn
	for range streams {
		unread = append(unread, l.open(service))
	}
	return func() {
		for _, conn := range unread {
			conn.Close()
		}
	}
}

func (l load) bulk(service byte, streams int) []*atomic.Int64 {
	var counts []*atomic.Int64
	for range streams {
		conn, count := l.open(service), &atomic.Int64{}
		counts = append(counts, count)
		if service == 'x' {
			go func() {
				buffer := make([]byte, Chunk)
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
			buffer := make([]byte, Chunk)
			for {
				var n int
				var err error
				if service != 'u' {
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

func (l load) throughput(service byte, streams int, grow time.Duration, seconds int) map[string]float64 {
	counts := l.bulk(service, streams)
	time.Sleep(grow)
	hub, agent := Usage(), l.agent()
	before, start := values(counts), time.Now()
	time.Sleep(time.Duration(seconds) * time.Second)
	after, span := values(counts), time.Since(start).Seconds()
	hubAfter, agentAfter := Usage(), l.agent()
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

func (l load) echo(bulk, seconds int) map[string]float64 {
	conn := l.open('e')
	counts := l.bulk('d', bulk)
	time.Sleep(warm)
	before, start := sum(values(counts)), time.Now()
	times := echoes(conn, time.Duration(seconds)*time.Second)
	result := percentiles(times)
	result["bulk MB/s"] = (sum(values(counts)) - before) / time.Since(start).Seconds() / 1e6
	return result
}

func (l load) slow(streams, seconds int) map[string]float64 {
	conn := l.open('e')
	hub, agent := Usage(), l.agent()
	unread := l.hold('d', streams)
	defer unread()
	counts := l.bulk('d', 1)
	time.Sleep(warm)
	before, start := sum(values(counts)), time.Now()
	result := percentiles(echoes(conn, time.Duration(seconds)*time.Second))
	result["bulk MB/s"] = (sum(values(counts)) - before) / time.Since(start).Seconds() / 1e6
	hubAfter, agentAfter := Usage(), l.agent()
	result["hub MB"] = (hubAfter.RSS - hub.RSS) / 1024
	result["agent MB"] = (agentAfter.RSS - agent.RSS) / 1024
	return result
}

func (l load) tiny(streams, seconds int) map[string]float64 {
	conn := l.open('e')
	unread := l.hold('t', streams/2)
	defer unread()
	counts := l.bulk('t', streams/2)
	time.Sleep(warm)
	before, start := sum(values(counts)), time.Now()
	result := percentiles(echoes(conn, time.Duration(seconds)*time.Second))
	result["k frames/s"] = (sum(values(counts)) - before) / Tiny / time.Since(start).Seconds() / 1e3
	return result
}

func (l load) openClose(workers, seconds int) map[string]float64 {
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
				conn := l.open('e')
				Must(conn.Write(buffer))
				Must(io.ReadFull(conn, buffer))
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

func (l load) cancels(count int) map[string]float64 {
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
				conn := l.open('d')
				_, _ = conn.Read(buffer)
				conn.Close()
			}
		}()
	}
	group.Wait()
	span := time.Since(start).Seconds()
	result := percentiles(echoes(l.open('e'), 200*time.Millisecond))
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
