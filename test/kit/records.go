package kit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// Records reads the whole log as the hub stores it, record by record.
func (p *Pool) Records() []gateway.LogRecord {
	p.tb.Helper()
	body, err := p.fetch("/api/v1/log")
	if err != nil {
		p.tb.Fatal(err)
	}
	defer body.Close()
	var all []gateway.LogRecord
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 4*domain.MaxEventBytes)
	for lines.Scan() {
		var r gateway.LogRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.Error != "" {
			p.tb.Fatalf("record behind %d: %v %s", len(all), err, r.Error)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		p.tb.Fatal(err)
	}
	return all
}

// Events reads the whole log, checks its chain, and decodes it.
func (p *Pool) Events() []event.Envelope {
	p.tb.Helper()
	r := event.NewRegistry()
	run.Register(r)
	machine.Register(r)
	pool.Register(r)
	v := event.NewVerifier(r)
	var all []event.Envelope
	for _, rec := range p.Records() {
		e, err := v.Next(rec.Seq, rec.Data)
		if err != nil {
			p.tb.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// Object fetches a part or a manifest from the hub. It is a blob.Get.
func (p *Pool) Object(_ context.Context, d domain.Digest) ([]byte, error) {
	body, err := p.fetch("/blobs/" + string(d))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// Blob fetches a whole blob.
func (p *Pool) Blob(id domain.Digest) []byte {
	p.tb.Helper()
	r, err := blob.Open(context.Background(), id, p.Object)
	if err != nil {
		p.tb.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		p.tb.Fatal(err)
	}
	return b
}

// Stream opens an answer that goes on, such as the events; it ends after Patience at the latest.
func (p *Pool) Stream(path string) (io.ReadCloser, error) { return p.fetch(path) }

func (p *Pool) fetch(path string) (io.ReadCloser, error) {
	req, err := http.NewRequest(http.MethodGet, p.URL+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return resp.Body, nil
}

// Healthz is what the hub says without a key.
func (p *Pool) Healthz() (string, error) {
	resp, err := p.client.Get(p.URL + "/healthz")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return string(b), err
}

// Put stores an object as the operator and gives the status of the hub's answer.
func (p *Pool) Put(data []byte) int {
	p.tb.Helper()
	return p.put(p.key, data)
}

// PutAs stores an object as the machine of the name does, with a token that its key signs, and gives the status; 0 when the hub
// hung up, as one does that has no room for the bytes that are still coming, or one that ends.
func (p *Pool) PutAs(name string, data []byte) int {
	keys, err := identity.LoadAgentKeys(filepath.Join(p.AgentDir(name), "agent.json"))
	if err != nil {
		return 0
	}
	token, err := identity.SignBlobToken(keys.Key(), keys.Machine, time.Now())
	if err != nil {
		return 0
	}
	req, err := http.NewRequest(http.MethodPut, p.URL+"/blobs/"+string(blob.Sum(data)), bytes.NewReader(data))
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := p.client.Do(req)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func (p *Pool) put(secret string, data []byte) int {
	p.tb.Helper()
	req, err := http.NewRequest(http.MethodPut, p.URL+"/blobs/"+string(blob.Sum(data)), bytes.NewReader(data))
	if err != nil {
		p.tb.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := p.client.Do(req)
	if err != nil {
		p.tb.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
