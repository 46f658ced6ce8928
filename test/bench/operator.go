package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"

	"tensorturn/broker/gateway"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
	"tensorturn/test/kit"
)

// operator is what the hub gave its owner.
type operator struct {
	URL, Key, CA string
	tls          *tls.Config
}

func operatorOf(d *bed, p *kit.Pool) operator {
	b, err := os.ReadFile(p.Context())
	d.Must(err)
	var o operator
	d.Must(json.Unmarshal(b, &o))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(o.CA))
	o.tls = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
	return o
}

// facts reads the hub's whole log, verified.
func facts(d *bed, p *kit.Pool) []event.Envelope {
	o := operatorOf(d, p)
	req, err := http.NewRequest(http.MethodGet, o.URL+"/api/v1/log", nil)
	d.Must(err)
	req.Header.Set("Authorization", "Bearer "+o.Key)
	client := &http.Client{Timeout: kit.Patience, Transport: &http.Transport{TLSClientConfig: o.tls, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	d.Must(err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		d.Fatalf("read log: %s", resp.Status)
	}
	v := event.NewVerifier(registry())
	var all []event.Envelope
	lines := json.NewDecoder(bufio.NewReader(resp.Body))
	for lines.More() {
		var rec gateway.LogRecord
		d.Must(lines.Decode(&rec))
		e, err := v.Next(rec.Seq, rec.Data)
		d.Must(err)
		all = append(all, e)
	}
	return all
}

// registry holds the facts of every aggregate.
func registry() *event.Registry {
	r := event.NewRegistry()
	run.Register(r)
	machine.Register(r)
	pool.Register(r)
	return r
}
