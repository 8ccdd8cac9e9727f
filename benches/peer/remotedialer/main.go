// remotedialer between two processes, a peer of the line's bench: `remotedialer hub ADDRESS DIRECTORY SCENARIO...` or
// `remotedialer agent ADDRESS DIRECTORY`.
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
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	"github.com/sirupsen/logrus"
	"linesman.invalid/bench/load"
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
				return min(load.Tiny, len(b)), nil
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
	pool.AppendCertsFromPEM(load.Must(os.ReadFile(filepath.Join(directory, "cert.pem"))))
	dialer := &websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "hub.bench"}}
	local := func(_ context.Context, _, service string) (net.Conn, error) {
		conn := &memory{service: service[:1], queue: make(chan []byte, 16), closed: make(chan struct{})}
		if conn.service == "s" {
			conn.queue <- load.Must(json.Marshal(load.Usage()))
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
	listener := load.Must(net.Listen("tcp", address))
	fmt.Println("LISTEN", listener.Addr())
	go func() {
		log.Fatal(http.ServeTLS(listener, server, filepath.Join(directory, "cert.pem"), filepath.Join(directory, "key.pem")))
	}()
	load.Await("the agent is connected", func() bool { return server.HasSession("agent") })
	dial := server.Dialer("agent")
	load.Run(func(service byte) net.Conn {
		return load.Must(dial(context.Background(), "tcp", string(service)+":1"))
	}, scenario)
}
