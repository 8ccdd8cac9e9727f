package load

import (
	"encoding/json"
	"io"
	"net"
)

// Serve answers connections to a socket, for peers whose agent's side knows nothing else to forward to. Their first byte
// names the service.
func Serve(listener net.Listener) {
	for {
		go serve(Must(listener.Accept()))
	}
}

// Named opens a stream to such a socket; how it is opened is the peer's own.
func Named(conn net.Conn, service byte) net.Conn {
	Must(conn.Write([]byte{service}))
	return conn
}

// How a stream ends is the other side's business.
func serve(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, Chunk)
	if _, err := io.ReadFull(conn, buffer[:1]); err != nil {
		return
	}
	switch buffer[0] {
	case 'd':
		give(conn, buffer)
	case 'u':
		take(conn, buffer)
	case 'x':
		go give(conn, make([]byte, Chunk))
		take(conn, buffer)
	case 't':
		give(conn, buffer[:Tiny])
	case 'e':
		for {
			n, err := conn.Read(buffer[:4096])
			if err != nil {
				return
			}
			if _, err := conn.Write(buffer[:n]); err != nil {
				return
			}
		}
	case 's':
		_, _ = conn.Write(Must(json.Marshal(Usage())))
	}
}

func give(conn net.Conn, buffer []byte) {
	for {
		if _, err := conn.Write(buffer); err != nil {
			return
		}
	}
}

func take(conn net.Conn, buffer []byte) {
	for {
		if _, err := conn.Read(buffer); err != nil {
			return
		}
	}
}
