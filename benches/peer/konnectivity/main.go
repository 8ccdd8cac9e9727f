// konnectivity between two processes, a peer of the line's bench: `konnectivity hub ADDRESS DIRECTORY SCENARIO...` is its
// server and what kube-apiserver has of it, `konnectivity agent ADDRESS DIRECTORY` its agent, by its libraries, over gRPC.
//
// As in kube-apiserver, a stream is a gRPC connection of its own to the server, over a Unix socket; and the agent knows no
// streams but those to an address that it dials. So a stream has a socket more at either end than the line has. Sizes of
// channels and the like are the defaults of its programs.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	"linesman.invalid/bench/load"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	frontendapi "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/proxystrategies"
	agentapi "sigs.k8s.io/apiserver-network-proxy/proto/agent"
)

func main() {
	quiet()
	side, address, directory := os.Args[1], os.Args[2], os.Args[3]
	if side == "agent" {
		serve(address, directory)
		return
	}
	hub(address, directory, os.Args[4:])
}

// quiet leaves out what it logs, errors of connections that are ended on purpose among it.
func quiet() {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	if err := flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"}); err != nil {
		log.Fatal(err)
	}
	klog.SetOutput(io.Discard)
}

// target is where the agent tells the hub the address to ask it for.
func target(directory string) string { return filepath.Join(directory, "konnectivity.target") }

func hub(address, directory string, scenario []string) {
	credential := load.Must(credentials.NewServerTLSFromFile(filepath.Join(directory, "cert.pem"), filepath.Join(directory, "key.pem")))
	strategies := []proxystrategies.ProxyStrategy{proxystrategies.ProxyStrategyDefault}
	proxy := server.NewProxyServer("hub", strategies, 1, &server.AgentTokenAuthenticationOptions{}, 10)

	listener := load.Must(net.Listen("tcp", address))
	agents := grpc.NewServer(grpc.Creds(credential))
	agentapi.RegisterAgentServiceServer(agents, proxy)
	go func() { log.Fatal(agents.Serve(listener)) }()
	fmt.Println("LISTEN", listener.Addr())

	// In no directory: a path could be too long.
	entrance := fmt.Sprintf("@linesman-bench-%d", os.Getpid())
	local := load.Must(net.Listen("unix", entrance))
	frontend := grpc.NewServer()
	frontendapi.RegisterProxyServiceServer(frontend, proxy)
	go func() { log.Fatal(frontend.Serve(local)) }()

	load.Await("the agent is connected", func() bool {
		ready, _ := proxy.Readiness.Ready()
		return ready
	})
	destination := string(load.Must(os.ReadFile(target(directory))))
	load.Run(func(service byte) net.Conn { return load.Named(open(entrance, destination), service) }, scenario)
}

func open(entrance, destination string) net.Conn {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", entrance)
	}
	ctx := context.Background()
	tunnel := load.Must(client.CreateSingleUseGrpcTunnelWithContext(ctx, ctx, "passthrough:///hub",
		grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials())))
	return load.Must(tunnel.DialContext(ctx, "tcp", destination))
}

func serve(address, directory string) {
	listener := load.Must(net.Listen("tcp", "127.0.0.1:0"))
	go load.Serve(listener)
	if err := os.WriteFile(target(directory), []byte(listener.Addr().String()), 0o600); err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(load.Must(os.ReadFile(filepath.Join(directory, "cert.pem"))))
	credential := credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "hub.bench"})
	config := &agent.ClientSetConfig{
		Address:         address,
		AgentID:         "agent",
		SyncInterval:    time.Second,
		ProbeInterval:   time.Second,
		SyncIntervalCap: 10 * time.Second,
		DialOptions:     []grpc.DialOption{grpc.WithTransportCredentials(credential), grpc.WithNoProxy()},
		XfrChannelSize:  150,
	}
	never := make(chan struct{})
	clients := config.NewAgentClientSet(never, never)
	clients.SetServerCounter(agent.NewResponseBasedCounter(clients))
	clients.Serve()
	<-never
}
