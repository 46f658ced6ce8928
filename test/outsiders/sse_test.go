package outsiders

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensorturn/test/kit"
)

// curl runs curl on the event stream for a while and gives what it printed.
func curl(t *testing.T, p *kit.Pool, limit time.Duration, query, lastID string) string {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	_, key := operator(t, p)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	resp := api(t, p, "/install/ca.pem", nil)
	defer resp.Body.Close()
	pem, err := bufio.NewReader(resp.Body).ReadString(0)
	if pem == "" {
		t.Fatal(err)
	}
	if err := os.WriteFile(ca, []byte(pem), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--silent", "--no-buffer", "--cacert", ca, "-H", "Authorization: Bearer " + key, p.URL + "/api/v1/events?" + query}
	if lastID != "" {
		args = append(args, "-H", "Last-Event-ID: "+lastID)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, _ := exec.CommandContext(ctx, path, args...).Output() // ended by its time
	return string(out)
}

// events reads a stream as a browser does: id, event and data lines, an empty line ends one.
func events(t *testing.T, stream string) (got []cloudEvent, lastID string) {
	t.Helper()
	for line := range strings.Lines(stream) {
		line = strings.TrimRight(line, "\n")
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			lastID = id
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			got = append(got, parseEvent(t, []byte(data)))
		}
	}
	return got, lastID
}

// TestCurlFollowsAndResumes follows with curl, restarts the hub, and resumes by Last-Event-ID: together nothing is missing
// and nothing comes twice. Our own command line, which follows all the while, misses nothing and repeats nothing either.
func TestCurlFollowsAndResumes(t *testing.T) {
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	followed := follow(t, p)
	p.StartAgent("a")
	p.AwaitEnd(p.Submit(spec(t, 1)))
	first, id := events(t, curl(t, p, 2*time.Second, "", ""))
	p.Hub.Stop(kit.Patience)
	p.StartHub()
	run := p.Submit(spec(t, 1))
	p.AwaitEnd(run)
	second, _ := events(t, curl(t, p, 2*time.Second, "", id))
	want := truth(t, p)
	if n := len(first) + len(second); len(first) == 0 || len(second) == 0 || n > len(want) {
		t.Errorf("%d and then %d events, %d have happened", len(first), len(second), len(want))
	}
	compare(t, "curl", append(first, second...), want)
	var line []cloudEvent
	p.Await("the command line to follow", func() bool { line = followed(); return len(line) >= len(want) })
	if compare(t, "events --follow", line, want); len(line) != len(want) {
		t.Errorf("events --follow printed %d events, %d have happened", len(line), len(want))
	}
	mine, _ := events(t, curl(t, p, kit.Patience, "follow=false&run="+string(run), ""))
	compare(t, "curl of one run", mine, truth(t, p, "--run", string(run)))
	machines, _ := events(t, curl(t, p, kit.Patience, "follow=false&kind=machine", ""))
	if len(machines) == 0 || !strings.HasPrefix(machines[0].Subject, "machines/") {
		t.Errorf("machines: %+v", machines)
	}
}

// follow runs `tensorturn events --follow --json` and gives what it has printed so far.
func follow(t *testing.T, p *kit.Pool) func() []cloudEvent {
	t.Helper()
	path := filepath.Join(t.TempDir(), "events")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(p.Bin, "events", "--follow", "--json", "--context", p.Context())
	c.Stdout = out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait(); out.Close() })
	return func() (got []cloudEvent) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasSuffix(line, "\n") {
				got = append(got, parseEvent(t, []byte(line)))
			}
		}
		return got
	}
}
