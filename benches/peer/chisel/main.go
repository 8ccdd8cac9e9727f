// chisel between two processes, a peer of the line's bench: `chisel hub ADDRESS DIRECTORY SCENARIO...` is its server,
// `chisel agent ADDRESS DIRECTORY` its client with a reverse remote, by its library.
//
// A reverse remote is a port at the server and an address that the client dials: a stream has a socket more at either end
// than the line has.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	client "github.com/jpillora/chisel/client"
	server "github.com/jpillora/chisel/server"
	"linesman.invalid/bench/load"
)

func main() {
	side, address, directory := os.Args[1], os.Args[2], os.Args[3]
	// It says there what it does, from the start; `log` has that file already.
	os.Stderr = load.Must(os.OpenFile(os.DevNull, os.O_WRONLY, 0))
	if side == "agent" {
		agent(address, directory)
		return
	}
	hub(address, directory, os.Args[4:])
}

// remote is where the hub tells the agent the port that it is to ask for.
func remote(directory string) string { return filepath.Join(directory, "chisel.remote") }

// free is an address that nobody listens at: chisel takes no listener, and does not tell which port the system gave it.
func free(address string) string {
	listener := load.Must(net.Listen("tcp", address))
	defer listener.Close()
	return listener.Addr().String()
}

func hub(address, directory string, scenario []string) {
	config := &server.Config{Reverse: true}
	config.TLS.Cert, config.TLS.Key = filepath.Join(directory, "cert.pem"), filepath.Join(directory, "key.pem")
	chisel := load.Must(server.NewServer(config))
	address, entrance := free(address), free("127.0.0.1:0")
	if err := os.WriteFile(remote(directory), []byte(entrance), 0o600); err != nil {
		log.Fatal(err)
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		err = chisel.Start(host, port)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("LISTEN", address)
	load.Await("the agent has its port opened here", func() bool {
		conn, err := net.Dial("tcp", entrance)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	load.Run(func(service byte) net.Conn {
		return load.Named(load.Must(net.Dial("tcp", entrance)), service)
	}, scenario)
}

func agent(address, directory string) {
	target := load.Must(net.Listen("tcp", "127.0.0.1:0"))
	go load.Serve(target)
	entrance := string(load.Must(os.ReadFile(remote(directory))))
	config := &client.Config{
		Server:  "https://" + address,
		Remotes: []string{"R:" + entrance + ":" + target.Addr().String()},
		TLS:     client.TLSConfig{CA: filepath.Join(directory, "cert.pem"), ServerName: "hub.bench"},
	}
	chisel := load.Must(client.NewClient(config))
	if err := chisel.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	log.Fatal(chisel.Wait())
}
