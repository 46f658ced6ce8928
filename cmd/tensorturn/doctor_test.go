package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent/doctor"
	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
)

// clinic is a real hub on loopback and the folder of a machine that has joined it. Hardware that a test machine may lack is faked, and
// so are the probes that start this program's own file, which is a test here.
type clinic struct {
	t     *testing.T
	hub   *hubProcess
	agent string // folder
	probe doctor.Probes
}

func newClinic(t *testing.T) *clinic {
	c := &clinic{t: t, agent: filepath.Join(t.TempDir(), "agent")}
	h, err := startHub(t.Context(), hubOptions{dir: filepath.Join(t.TempDir(), "hub"), listen: "127.0.0.1:0", lease: domain.MinLease, maxStore: 1 << 30, minFree: 1, logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	})
	c.hub = h
	c.join(c.agent, "box")
	return c
}

func (c *clinic) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *clinic) token() string {
	c.t.Helper()
	token, err := c.hub.firstToken(c.t.Context())
	c.must(err)
	return token.Token
}

func (c *clinic) join(dir, name string) *identity.AgentKeys {
	c.t.Helper()
	keys, err := quietApp(nil).join(c.t.Context(), joinRequest{dir: dir, hub: c.hub.url, token: c.token(), name: name, slots: 1})
	c.must(err)
	return keys
}

// ill copies the machine's folder and changes its keys.
func (c *clinic) ill(change func(*identity.AgentKeys)) (dir string) {
	c.t.Helper()
	keys, err := identity.LoadAgentKeys(filepath.Join(c.agent, agentKeysFile))
	c.must(err)
	change(keys)
	dir = c.t.TempDir()
	c.must(keys.Save(filepath.Join(dir, agentKeysFile)))
	return dir
}

func quietApp(out io.Writer) *app {
	return &app{terminal: &terminal{out: out, err: io.Discard, size: func() int { return 80 }}}
}

// well is a machine with a GPU, a torch that uses it, and a sandbox; all else is this machine.
func well(p *doctor.Probes) {
	p.GPUs = func(context.Context) doctor.GPUs {
		return doctor.GPUs{Cards: 1, Names: []string{"NVIDIA GeForce RTX 3090"}, Driver: "535.183.01", CUDA: "12.2", Loaded: true}
	}
	p.Python = func(context.Context, string) doctor.Python {
		return doctor.Python{Path: "/usr/bin/python3", Version: [2]int{3, 12}, Torch: "2.5.1+cu121", CUDA: "12.1", Available: true}
	}
	p.Sandbox = func(context.Context) (bool, string) { return true, "bubblewrap: full" }
	p.Proxy = func(*url.URL) (*url.URL, error) { return nil, nil }
	p.Space = func(string) (int64, error) { return 100 << 30, nil }
}

// diagnose runs the command as a person does, once for people and once for programs, and gives what was found and the exit code.
func (c *clinic) diagnose(change func(*doctor.Probes), words ...string) (found examined, text string, code int) {
	c.t.Helper()
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		a := quietApp(&out)
		a.examine = func(p *doctor.Probes) {
			well(p)
			if change != nil {
				change(p)
			}
		}
		root := newRoot(a)
		line := append([]string{"doctor"}, words...)
		if asJSON {
			line = append(line, "--json")
		}
		root.SetArgs(line)
		code = exitCode(root.ExecuteContext(c.t.Context()))
		if !asJSON {
			text = out.String()
		} else if err := json.Unmarshal(out.Bytes(), &found); err != nil {
			c.t.Fatalf("%v: %s", err, out.String())
		}
	}
	return found, text, code
}

// problems lists the codes of what hinders.
func problems(x examined) (codes []doctor.Code) {
	for _, r := range x.Examined {
		for _, f := range r.Findings {
			if f.State == doctor.Problem || f.State == doctor.Unknown {
				codes = append(codes, f.Code)
			}
		}
	}
	return codes
}

// fault is one row of the table.
type fault struct {
	name string
	want doctor.Code
	fix  string // a part of it
	// seed makes the fault and gives the command's words and what the doctor looks with.
	seed func(*testing.T) (words []string, change func(*doctor.Probes))
}

// The fifteen faults, each found alone and named with its fix, for people and for programs; and the healthy control.
func TestFifteenFaults(t *testing.T) {
	c := newClinic(t)
	for _, dir := range []string{c.agent, c.hub.opts.dir} {
		if x, text, code := c.diagnose(nil, "--dir", dir); code != 0 || !x.Healthy || len(problems(x)) > 0 {
			t.Fatalf("healthy, and yet exit code %d:\n%s", code, text)
		}
	}
	faults := slices.Concat(c.hardwareFaults(), c.wayFaults(), c.memberFaults(), c.hostFaults())
	found := 0
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			words, change := f.seed(t)
			x, text, code := c.diagnose(change, words...)
			if got := problems(x); code != exitFailure || x.Healthy || len(got) != 1 || got[0] != f.want {
				t.Fatalf("exit code %d, found %v, want %s:\n%s", code, got, f.want, text)
			}
			line := lineOf(text, "problem  "+string(f.want)+": ")
			_, fix, told := strings.Cut(line, "; fix: ")
			if !told || !strings.Contains(fix, f.fix) {
				t.Fatalf("the fix does not say %q:\n%s", f.fix, line)
			}
			found++
			t.Log(line)
		})
	}
	if len(faults) != 15 || found != 15 {
		t.Errorf("%d of %d seeded faults were found", found, len(faults))
	}
}

func lineOf(text, begin string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begin) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// interpreter writes a program that stands for Python.
func interpreter(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// says is an interpreter that answers the doctor's question.
func says(t *testing.T, answer string) string { return interpreter(t, "echo '"+answer+"'") }

// really lets the doctor start the interpreter that is named, and no other.
func really(p *doctor.Probes) {
	p.Python = func(ctx context.Context, wish string) doctor.Python {
		return doctor.AskPython(ctx, wish, []string{"PATH=" + os.Getenv("PATH")}, nil)
	}
}

func (c *clinic) hardwareFaults() []fault {
	here := []string{"--dir", c.agent}
	return []fault{
		{"no driver", doctor.DriverMissing, "install NVIDIA's driver", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			bus := t.TempDir() // as /sys/bus/pci/devices of a machine with a card
			for name, text := range map[string]string{"0000:01:00.0/vendor": "0x10de\n", "0000:01:00.0/class": "0x030000\n", "0000:01:00.1/vendor": "0x10de\n", "0000:01:00.1/class": "0x040300\n", "0000:02:00.0/vendor": "0x8086\n", "0000:02:00.0/class": "0x030000\n"} {
				c.must(os.MkdirAll(filepath.Dir(filepath.Join(bus, name)), 0o700))
				c.must(os.WriteFile(filepath.Join(bus, name), []byte(text), 0o600))
			}
			return here, func(p *doctor.Probes) {
				p.GPUs = func(context.Context) doctor.GPUs { return doctor.GPUs{Cards: cardsOnBus(bus)} }
			}
		}},
		{"driver and CUDA mismatch", doctor.CUDAMismatch, "newer driver", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			return append(here, "--python", says(t, `{"path": "x", "version": [3, 12], "torch": "2.9.0+cu130", "cuda": "13.0", "available": false, "kernel": "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)"}`)), really
		}},
		{"no torch", doctor.TorchMissing, "pip install torch", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			py := says(t, `{"path": "x", "version": [3, 12], "import": "ModuleNotFoundError: No module named torch"}`)
			if real, err := exec.LookPath("python3"); err == nil { // the real one, without the packages it may have
				py = interpreter(t, "exec "+real+` -I -S "$@"`)
			}
			return append(here, "--python", py), really
		}},
		{"wrong interpreter", doctor.PythonWrong, "agent start --python", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			return append(here, "--python", "/bin/echo"), really
		}},
		{"unusable sandbox", doctor.SandboxUnusable, "bubblewrap", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			return append(here, "--sandbox"), func(p *doctor.Probes) {
				p.Sandbox = func(context.Context) (bool, string) {
					return false, "bubblewrap is not installed; Landlock: the kernel has none"
				}
			}
		}},
	}
}

func (c *clinic) wayFaults() []fault {
	return []fault{
		{"hub unreachable by name", doctor.NameUnknown, "DNS", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			return []string{"--dir", c.ill(func(k *identity.AgentKeys) { k.Hub = "https://no-such-hub.invalid:7443" })}, nil
		}},
		{"port blocked", doctor.PortBlocked, "open TCP", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			c.must(err)
			c.must(l.Close()) // nothing listens there now
			return []string{"--dir", c.ill(func(k *identity.AgentKeys) { k.Hub = "https://" + l.Addr().String() })}, nil
		}},
		{"WebSocket stripped by a proxy", doctor.WebsocketStripped, "Upgrade", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			front := c.stripping(t)
			return []string{"--dir", c.ill(func(k *identity.AgentKeys) { k.Hub = front })}, nil
		}},
		{"clock off", doctor.ClockOff, "time synchronisation", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			return []string{"--dir", c.agent}, func(p *doctor.Probes) { p.Now = func() time.Time { return time.Now().Add(3 * time.Hour) } }
		}},
	}
}

// stripping is a reverse proxy before the hub, with its certificate, that passes everything but upgrades.
func (c *clinic) stripping(t *testing.T) string {
	to, err := url.Parse(c.hub.url)
	c.must(err)
	trust, err := identity.TrustTLS(c.hub.keys.CA())
	c.must(err)
	inside := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }, Transport: &http.Transport{TLSClientConfig: trust}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Upgrade")
		r.Header.Del("Connection")
		inside.ServeHTTP(w, r)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{c.hub.keys.ServerCertificate()}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func (c *clinic) memberFaults() []fault {
	return []fault{
		{"wrong token", doctor.TokenWrong, "token create", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			real, err := identity.ParseToken(c.token())
			c.must(err)
			forged, err := identity.NewToken(strings.NewReader(strings.Repeat("forged", 20)), real.Pin())
			c.must(err)
			file := filepath.Join(t.TempDir(), "token")
			c.must(os.WriteFile(file, []byte(forged.Plain()+"\n"), 0o600))
			return []string{"--dir", t.TempDir(), "--hub", c.hub.url, "--token-file", file}, nil
		}},
		{"expired credential", doctor.CredentialExpired, "agent start", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			return []string{"--dir", c.ill(func(k *identity.AgentKeys) {
				id, err := c.hub.keys.KnownMachine(k.Machine)
				c.must(err)
				k.Credential, err = id.Credential(k.NKey(), identity.CredentialLife, time.Now().Add(-30*time.Hour))
				c.must(err)
			})}, nil
		}},
		{"two machines with one key", doctor.KeyShared, "token of its own", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			first := filepath.Join(t.TempDir(), "cloned")
			keys := c.join(first, "cloned")
			second := t.TempDir()
			c.must(keys.Save(filepath.Join(second, agentKeysFile)))
			for _, dir := range []string{first, second} {
				p, err := startAgent(t.Context(), agentOptions{dir: dir, wish: 1, throttle: 1, cacheBytes: 1 << 20, stopLimit: time.Second, logger: zerolog.Nop()})
				c.must(err)
				t.Cleanup(func() { _ = p.stop() })
			}
			c.await("the hub to notice both agents", func() bool {
				ids, err := c.hub.service.Contested(t.Context())
				return err == nil && slices.Contains(ids, keys.Machine)
			})
			for _, dir := range []string{first, c.hub.opts.dir} { // told on both machines and on the hub
				if x, text, _ := c.diagnose(nil, "--dir", dir); !slices.Equal(problems(x), []doctor.Code{doctor.KeyShared}) || !strings.Contains(text, string(keys.Machine)) {
					t.Errorf("in %s:\n%s", dir, text)
				}
			}
			return []string{"--dir", second}, nil
		}},
	}
}

// await asks until yes says so, for at most patience.
func (c *clinic) await(what string, yes func() bool) {
	c.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !yes(); <-tick.C {
		if time.Since(began) > patience {
			c.t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

func (c *clinic) hostFaults() []fault {
	return []fault{
		{"small disk", doctor.DiskSmall, "--dir", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			dir, space := tiny(t, 1<<20)
			b, err := os.ReadFile(filepath.Join(c.agent, agentKeysFile))
			c.must(err)
			c.must(os.WriteFile(filepath.Join(dir, agentKeysFile), b, 0o600))
			return []string{"--dir", dir}, func(p *doctor.Probes) { p.Space = onlyAt(dir, space) }
		}},
		{"full temp folder", doctor.TempFull, "TMPDIR", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			dir, space := tiny(t, 64<<10)
			_ = os.WriteFile(filepath.Join(dir, "fills it"), make([]byte, 1<<20), 0o600) // as far as there is room
			return []string{"--dir", c.agent}, func(p *doctor.Probes) { p.Temp, p.Space = dir, onlyAt(dir, space) }
		}},
		{"low file limit", doctor.FilesLow, "ulimit -n", func(t *testing.T) ([]string, func(*doctor.Probes)) {
			return []string{"--dir", c.agent}, func(p *doctor.Probes) { p.Files = func() (uint64, error) { return filesUnder(t, 200) } }
		}},
	}
}

// onlyAt lets one folder's disk be what space says.
func onlyAt(dir string, space func(string) (int64, error)) func(string) (int64, error) {
	return func(at string) (int64, error) {
		if at == dir {
			return space(at)
		}
		return 100 << 30, nil
	}
}

// tiny mounts a small disk where this user may, and else gives a folder whose disk is said to be small.
func tiny(t *testing.T, size int) (dir string, space func(string) (int64, error)) {
	t.Helper()
	dir = t.TempDir()
	if err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size), "none", dir).Run(); err != nil {
		t.Log("no small disk can be mounted here; its size is faked")
		return dir, func(string) (int64, error) { return int64(size), nil }
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", dir).Run(); err != nil {
			t.Error(err)
		}
	})
	return dir, freeSpace
}

// filesUnder asks a child with a limit of its own how many files it may open.
func filesUnder(t *testing.T, n int) (uint64, error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	own := filepath.Join(t.TempDir(), "openfiles") // the name makes this program print its limit
	if err := os.Link(exe, own); err != nil {
		if err := copyProgram(exe, own); err != nil {
			return 0, err
		}
	}
	out, err := exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d; exec %s", n, own)).Output()
	if err != nil {
		return 0, err
	}
	var limit uint64
	_, err = fmt.Sscan(string(out), &limit)
	return limit, err
}

func copyProgram(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o700)
}

// printOpenFiles is the child of filesUnder.
func printOpenFiles() {
	n, err := doctor.OpenFiles()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(n)
	os.Exit(0)
}

// A token that is used up, cut or of another kind is told as such, and asking uses nothing of a good one.
func TestTokensAreTried(t *testing.T) {
	c := newClinic(t)
	good := c.token()
	for range 2 {
		if x, text, code := c.diagnose(nil, "--dir", t.TempDir(), "--hub", c.hub.url, "--token", good); code != 0 || !x.Healthy || !strings.Contains(text, "the token is good") {
			t.Fatalf("exit code %d:\n%s", code, text)
		}
	}
	_, err := quietApp(nil).join(t.Context(), joinRequest{dir: t.TempDir(), hub: c.hub.url, token: good, name: "late", slots: 1})
	c.must(err)
	var key gateway.CreatedKey
	cl := c.client()
	c.must(cl.call(t.Context(), http.MethodPost, "/api/v1/keys", gateway.CreateKey{Role: "operator"}, &key))
	for name, row := range map[string]struct{ token, why string }{"used up": {good, "used up"}, "cut": {good[:60], "truncated"}, "a key": {key.Secret, "not a join token"}} {
		x, text, _ := c.diagnose(nil, "--dir", t.TempDir(), "--hub", c.hub.url, "--token", row.token)
		if !slices.Equal(problems(x), []doctor.Code{doctor.TokenWrong}) || !strings.Contains(text, row.why) || strings.Contains(text, row.token) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

func (c *clinic) client() *client {
	c.t.Helper()
	ctx, err := loadContext(c.hub.contextFile())
	c.must(err)
	cl, err := newClient(ctx)
	c.must(err)
	c.t.Cleanup(cl.http.CloseIdleConnections)
	return cl
}

// A hub that cannot reach its own public address, as behind most home routers, still gives its first token.
func TestFirstTokenWithoutTheWayToItself(t *testing.T) {
	h, err := startHub(t.Context(), hubOptions{dir: t.TempDir(), listen: "127.0.0.1:0", publicURL: "https://no-such-hub.invalid:7443", lease: domain.MinLease, maxStore: 1 << 30, minFree: 1, logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	token, err := h.firstToken(t.Context())
	if err != nil || !strings.Contains(token.Join, "https://no-such-hub.invalid:7443") {
		t.Errorf("%q %v", token.Join, err)
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}

// The folder says whose it is, and the command says what is wrong with a folder or with the words that name it.
func TestWhoIsExamined(t *testing.T) {
	c := newClinic(t)
	open := c.ill(func(*identity.AgentKeys) {})
	c.must(os.Chmod(filepath.Join(open, agentKeysFile), 0o644))
	halfHub := t.TempDir()
	c.must(os.Mkdir(filepath.Join(halfHub, "keys"), 0o700))
	for name, row := range map[string]struct {
		words []string
		kind  doctor.Kind
		want  []doctor.Code
		code  int
	}{
		"agent":             {[]string{"--dir", c.agent}, doctor.Agent, nil, 0},
		"hub":               {[]string{"--dir", c.hub.opts.dir}, doctor.Hub, nil, 0},
		"nobody":            {[]string{"--dir", t.TempDir()}, doctor.Agent, []doctor.Code{doctor.NotJoined}, 1},
		"not there":         {[]string{"--dir", filepath.Join(t.TempDir(), "none", "at", "all")}, doctor.Agent, []doctor.Code{doctor.NotJoined}, 1},
		"others may read":   {[]string{"--dir", open}, doctor.Agent, []doctor.Code{doctor.KeysDamaged}, 1},
		"hub without file":  {[]string{"--dir", halfHub}, doctor.Hub, []doctor.Code{doctor.KeysDamaged}, 1},
		"another hub":       {[]string{"--dir", c.agent, "--hub", "https://other.example:7443"}, "", nil, exitConflict},
		"the same hub":      {[]string{"--dir", c.agent, "--hub", c.hub.url + "/"}, doctor.Agent, nil, 0},
		"no address":        {[]string{"--dir", t.TempDir(), "--hub", "hub:7443"}, "", nil, exitUsage},
		"two tokens":        {[]string{"--dir", t.TempDir(), "--token", "a", "--token-file", "b"}, "", nil, exitUsage},
		"an argument":       {[]string{"me"}, "", nil, exitUsage},
		"no such directory": {[]string{"--dir", c.agent, "--bundle", filepath.Join(t.TempDir(), "no", "where")}, "", nil, exitUsage},
	} {
		x, text, code := c.diagnoseOnce(nil, row.words...)
		if code != row.code || !slices.Equal(problems(x), row.want) || row.kind != "" && (len(x.Examined) != 1 || x.Examined[0].Kind != row.kind) {
			t.Errorf("%s: exit code %d, %v\n%s", name, code, problems(x), text)
		}
	}
}
