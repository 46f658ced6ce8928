package jetstream_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"tensorturn/broker/brokertest"
)

// killDir names the store directory to the child process of TestKilledInTheMiddle.
const killDir = "TENSORTURN_TEST_KILL_DIR"

// TestChild is no test of its own: it is the hub that TestKilledInTheMiddle kills. It appends batches for ever and
// prints the last sequence of each acknowledged one.
func TestChild(t *testing.T) {
	dir := os.Getenv(killDir)
	if dir == "" {
		t.Skip("runs as the child of another test only")
	}
	l := openStore(t, startServer(t, dir)).Log
	seq, err := l.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for {
		n := 1 + int(seq%97)
		last, err := l.Append(context.Background(), seq, brokertest.Records(fmt.Sprintf("s-%d-n-%d", seq, n), n))
		if err != nil {
			t.Fatal(err)
		}
		seq = last
		fmt.Printf("acked %d\n", seq)
	}
}

// TestKilledInTheMiddle kills the hub's process with SIGKILL at random moments, again and again on one directory. What
// was acknowledged is there, no batch is there in part, and there is no gap.
func TestKilledInTheMiddle(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(3, 4))
	acked := uint64(0)
	for range 8 {
		acked = killAfter(t, dir, acked, 1+r.IntN(25))
	}
	l := openStore(t, startServer(t, dir)).Log
	recs := brokertest.All(t, l, 1)
	if uint64(len(recs)) < acked {
		t.Fatalf("%d records, but %d were acknowledged", len(recs), acked)
	}
	for i := 0; i < len(recs); {
		command, _, _ := strings.Cut(recs[i].ID, ".")
		_, size, _ := strings.Cut(command, "-n-")
		n, err := strconv.Atoi(size)
		if err != nil || i+n > len(recs) || recs[i+n-1].ID != fmt.Sprintf("%s.%d", command, n-1) {
			t.Fatalf("batch %s is stored in part at record %d of %d", command, i+1, len(recs))
		}
		i += n
	}
	t.Logf("%d records, %d acknowledged", len(recs), acked)
}

// killAfter runs the child until it has acknowledged n batches more, kills it, and gives the last acknowledged sequence.
func killAfter(t *testing.T, dir string, acked uint64, n int) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), killDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for seen := 0; lines.Scan(); {
		var seq uint64
		if _, err := fmt.Sscanf(lines.Text(), "acked %d", &seq); err != nil {
			t.Fatalf("child says %q", lines.Text())
		}
		acked = seq
		if seen++; seen == n {
			_ = cmd.Process.Kill() // it goes on for a moment: lines that still come count as well
		}
	}
	_ = cmd.Wait() // killed: an error by intention
	return acked
}
