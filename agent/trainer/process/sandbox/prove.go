package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// What a proof tries.
const (
	TrySecret  = "read a secret"
	TryWrite   = "write outside"
	TryTCP     = "open a TCP socket"
	TryUDP     = "open a UDP socket"
	TrySignal  = "signal the agent"
	TryEnviron = "read the agent's environment"
	TryUnix    = "reach another program's Unix socket"
)

// needed must be refused for a sandbox to count; the rest tells a full one from a partial one.
var needed = [...]string{TrySecret, TryWrite, TryTCP, TryUDP, TrySignal, TryEnviron}

// Try is one thing that was tried from within.
type Try struct {
	What    string
	Refused bool
	Note    string // what the system said
}

// Report is the outcome of a proof.
type Report struct {
	Backend Backend
	Tries   []Try
	Why     string // why there is none, or why the proof could not be made
}

// Holds reports whether everything that must be was refused.
func (r Report) Holds() bool {
	for _, what := range needed {
		if !slices.ContainsFunc(r.Tries, func(t Try) bool { return t.What == what && t.Refused }) {
			return false
		}
	}
	return r.Why == ""
}

// Full reports whether everything was refused.
func (r Report) Full() bool { return r.Holds() && len(r.open()) == 0 }

// open lists what was not refused.
func (r Report) open() (open []string) {
	for _, t := range r.Tries {
		if !t.Refused {
			open = append(open, t.What)
		}
	}
	return open
}

// String says it in a line, for the machine's page.
func (r Report) String() string {
	switch {
	case r.Why != "":
		return fmt.Sprintf("%s: %s", r.Backend, r.Why)
	case r.Full():
		return fmt.Sprintf("%s: full", r.Backend)
	case r.Holds():
		return fmt.Sprintf("%s: partial, a program can %s", r.Backend, strings.Join(r.open(), ", "))
	}
	return fmt.Sprintf("%s: failed its proof, a program can %s", r.Backend, strings.Join(r.open(), ", "))
}

// attempt is what the helper tries within the sandbox. Everything it needs to know is in it; what it must not find out
// lies outside.
type attempt struct {
	Secret  string `json:"secret"`  // a file
	Outside string `json:"outside"` // a file to make
	Inside  string `json:"inside"`  // a file that it must be able to make
	TCP     string `json:"tcp"`     // addresses
	UDP     string `json:"udp"`
	Unix    string `json:"unix"`
	Agent   int    `json:"agent"` // process number
}

// outcome is what the helper prints: what it got, and what the system said.
type outcome struct {
	Secret  string            `json:"secret"`
	Environ string            `json:"environ"` // SHA-256 of what it read, in hex
	Inside  bool              `json:"inside"`
	Said    map[string]string `json:"said"`
}

// run tries everything and prints the outcome.
func (a *attempt) run(w io.Writer) int {
	out := outcome{Said: map[string]string{}}
	note := func(what string, err error) {
		out.Said[what] = "done"
		if err != nil {
			out.Said[what] = err.Error()
		}
	}
	out.Inside = os.WriteFile(a.Inside, []byte("x"), 0o600) == nil
	secret, err := os.ReadFile(a.Secret)
	out.Secret = string(secret)
	note(TrySecret, err)
	note(TryWrite, os.WriteFile(a.Outside, []byte("x"), 0o600))
	for what, at := range map[string][2]string{TryTCP: {"tcp", a.TCP}, TryUDP: {"udp", a.UDP}, TryUnix: {"unix", a.Unix}} {
		c, err := net.DialTimeout(at[0], at[1], time.Second)
		if err == nil {
			if what == TryUDP { // a connection is seen by itself, a datagram must be sent
				_, err = c.Write([]byte("x"))
			}
			_ = c.Close()
		}
		note(what, err)
	}
	note(TrySignal, sendHarmless(a.Agent))
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", a.Agent))
	if err == nil {
		out.Environ = digest(environ)
	}
	note(TryEnviron, err)
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return 1
	}
	return 0
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// prove plants a secret, listens, lets the helper try, and looks at what has come through. What it says of itself is not
// taken for granted where it can be seen from here.
func (s *Sandbox) prove(ctx context.Context, dir string) Report {
	r := Report{Backend: s.backend}
	stage, err := newStage(dir)
	if err != nil {
		r.Why = "the proof cannot be set up: " + err.Error()
		return r
	}
	defer stage.close()
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	p := System()
	p.Read = append(p.Read, s.exe)
	p.Hide = []string{dir}
	p.Write, p.Dir = []string{stage.inside}, stage.inside
	words := s.Wrap(p, line(s.exe, errand{Proof: &stage.attempt}, nil))
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	got, err := cmd.Output()
	var out outcome
	switch {
	case err != nil:
		r.Why = "it does not start: " + firstLine(stderr.String()+" "+err.Error())
		return r
	case len(got) > maxProofText || json.Unmarshal(got, &out) != nil:
		r.Why = "the proof says nothing"
		return r
	case !out.Inside:
		r.Why = "a program cannot write to its own folder"
		return r
	}
	r.Tries = stage.judge(out)
	return r
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s[:min(len(s), 200)]
}

// stage is what a proof needs around it.
type stage struct {
	dir, inside string
	attempt     attempt
	secret      string
	heard       map[string]chan struct{} // holds a token when something came through
	closers     []func()
}

func newStage(dir string) (s *stage, err error) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	s = &stage{secret: hex.EncodeToString(b[:]), heard: map[string]chan struct{}{}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp(dir, "proof-"); err != nil {
		return s, err
	}
	s.inside = filepath.Join(s.dir, "inside")
	sockets, err := os.MkdirTemp("", "tt-") // the path of a socket is short
	if err != nil {
		return s, err
	}
	s.closers = append(s.closers, func() { _ = os.RemoveAll(sockets) })
	s.attempt = attempt{Secret: filepath.Join(s.dir, "secret"), Outside: filepath.Join(s.dir, "outside"), Inside: filepath.Join(s.inside, "x"),
		Unix: filepath.Join(sockets, "s"), Agent: os.Getpid()}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return s, err
	}
	s.listen(TryTCP, tcp)
	named, err := net.Listen("unix", s.attempt.Unix)
	if err != nil {
		return s, err
	}
	s.listen(TryUnix, named)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return s, err
	}
	s.receive(udp)
	s.attempt.TCP, s.attempt.UDP = tcp.Addr().String(), udp.LocalAddr().String()
	s.watchSignal()
	return s, errors.Join(os.Mkdir(s.inside, 0o700), os.WriteFile(s.attempt.Secret, []byte(s.secret), 0o600))
}

// listen notes the first connection.
func (s *stage) listen(what string, l net.Listener) {
	came, done := make(chan struct{}, 1), make(chan struct{})
	s.heard[what] = came
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			came <- struct{}{}
			_ = c.Close()
		}
	}()
	s.closers = append(s.closers, func() { _ = l.Close(); <-done })
}

// receive notes the first datagram.
func (s *stage) receive(l net.PacketConn) {
	came, done := make(chan struct{}, 1), make(chan struct{})
	s.heard[TryUDP] = came
	go func() {
		defer close(done)
		if _, _, err := l.ReadFrom(make([]byte, 16)); err == nil {
			came <- struct{}{}
		}
	}()
	s.closers = append(s.closers, func() { _ = l.Close(); <-done })
}

// settleTime is how long something that came through may take to be seen here.
const settleTime = 200 * time.Millisecond

// judge compares what the helper says with what is seen from here. Either is enough to say that it was not refused.
func (s *stage) judge(out outcome) []Try {
	saw := map[string]bool{
		TrySecret:  strings.Contains(out.Secret, s.secret),
		TryEnviron: out.Environ != "" && out.Environ == ownEnviron(),
	}
	_, err := os.Stat(s.attempt.Outside)
	saw[TryWrite] = err == nil
	for what, came := range s.heard {
		if out.Said[what] != "done" {
			continue // nothing was sent
		}
		t := time.NewTimer(settleTime)
		select {
		case <-came:
			saw[what] = true
		case <-t.C: // sent, but not to us: into a network of its own, or to another process with our number
		}
		t.Stop()
	}
	var tries []Try
	for _, what := range append(slices.Clone(needed[:]), TryUnix) {
		note := out.Said[what]
		if !saw[what] && note == "done" {
			note = "it reached something else"
		}
		tries = append(tries, Try{What: what, Refused: !saw[what], Note: note})
	}
	return tries
}

// ownEnviron is the digest of what a program would read of this process.
func ownEnviron() string {
	b, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return ""
	}
	return digest(b)
}

// close ends everything and removes the folder.
func (s *stage) close() {
	for _, f := range s.closers {
		f()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
