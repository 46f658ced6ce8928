package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/renameio/v2"

	"tensorturn/broker/identity"
	"tensorturn/test/kit"
)

// The files by which a bare server and the bench find each other.
const (
	bareAnswer = "answer"
	bareURL    = "url"
	bareCA     = "ca.pem"
)

// bareServer is a process of this program that does what any Go server over HTTPS must: it reads each request whole and
// answers with constant bytes.
type bareServer struct {
	url   string
	trust *tls.Config
	pid   int
}

// startBare starts the process; it ends with the section.
func startBare(d *bed, answer []byte) *bareServer {
	dir := d.TempDir()
	d.Must(os.WriteFile(filepath.Join(dir, bareAnswer), answer, 0o600))
	exe, err := os.Executable()
	d.Must(err)
	c := exec.Command(exe, "--bare-child", dir)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	d.Must(err)
	d.Must(c.Start())
	d.Cleanup(func() {
		in.Close()
		d.Must(c.Wait())
	})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		url, err := os.ReadFile(filepath.Join(dir, bareURL))
		if err == nil {
			ca, err := os.ReadFile(filepath.Join(dir, bareCA))
			d.Must(err)
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(ca)
			return &bareServer{string(url), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, c.Process.Pid}
		}
		if time.Since(began) > kit.Patience {
			d.Fatalf("the bare server did not start")
		}
	}
}

// bareIn is the process: the same kind of key, TLS 1.3 and HTTP/1.1 as the hub has.
func bareIn(dir string, until io.Reader, stderr io.Writer) int {
	if err := serveBare(dir, until); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func serveBare(dir string, until io.Reader) error {
	answer, err := os.ReadFile(filepath.Join(dir, bareAnswer))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	url := "https://" + l.Addr().String()
	keys, err := identity.Create(filepath.Join(dir, "keys"), identity.Options{PublicURL: url, Now: time.Now()})
	if err != nil {
		return err
	}
	length := strconv.Itoa(len(answer))
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", length)
		w.Write(answer)
	})}
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{keys.ServerCertificate()}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}))
	}()
	if err := os.WriteFile(filepath.Join(dir, bareCA), keys.CA(), 0o600); err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(dir, bareURL), []byte(url), 0o600); err != nil {
		return err
	}
	io.Copy(io.Discard, until)
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	err = s.Shutdown(ctx)
	<-served
	return err
}
