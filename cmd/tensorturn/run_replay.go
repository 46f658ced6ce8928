package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/projections/replay"
	"tensorturn/projections/timeline"
)

func runReplay(a *app) *cobra.Command {
	var verify, brief bool
	var at, diff uint64
	var archive string
	c := &cobra.Command{Use: "replay RUN", Short: "tell a run from the log alone; --verify recomputes every merge and vote bit for bit", Args: args("RUN"),
		Long: "Reads the log from the hub, checks the hash chain here, and tells the run line by line. With --verify it fetches the\n" +
			"stored deltas and weights and computes every merge again on this machine, and an ensemble's vote, weights and temperature from its\n" +
			"members' stored outputs; one differing bit is exit code 9.\n\n" + replayWords,
		RunE: func(c *cobra.Command, got []string) error {
			marks, err := marksOf(at, diff)
			if err != nil {
				return err
			}
			id, l, get, done, err := a.replayed(c.Context(), got[0], archive, marks)
			if err != nil {
				return err
			}
			defer done()
			if at > 0 {
				return a.showPoint(l, at, diff)
			}
			if !verify {
				return a.tell(l, id, brief)
			}
			r, err := a.verify(c.Context(), get, l)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(r)
			}
			if r.Vote != nil {
				a.print("replay %s: the vote of %s recomputed (%s, temperature %.4g, accuracy %.4f), %d of %d samples counted, %d records, head %s", r.Verdict,
					count(r.Vote.Members, "member"), r.Vote.Rule, r.Vote.Temperature, r.Vote.Accuracy, r.Counted, r.Expected, r.Records, r.Head.Short())
				return nil
			}
			if r.Rounds == 0 {
				a.print("no round is merged yet, so there is nothing to recompute: the chain of %d records holds, head %s", r.Records, r.Head.Short())
				return nil
			}
			a.print("replay %s: %d of %d rounds recomputed, %d of %d samples counted, %d records, head %s", r.Verdict, r.Recomputed, r.Rounds, r.Counted, r.Expected, r.Records, r.Head.Short())
			if len(r.HashOnly) > 0 {
				a.print("proven by digests alone: rounds %v", r.HashOnly)
			}
			return nil
		}}
	c.Flags().Uint64Var(&at, "at", 0, "show the run as it stood behind this sequence of the log")
	c.Flags().Uint64Var(&diff, "diff", 0, "with --at: what changed from there to this sequence")
	c.Flags().BoolVar(&brief, "brief", false, "leave out which chunks are dealt, claimed and trained: what decides is left")
	c.Flags().StringVar(&archive, "archive", "", "read the run from this archive instead of a hub (tensorturn log import)")
	c.Flags().BoolVar(&verify, "verify", false, "recompute every merge from the stored deltas, and the vote from stored outputs")
	return c
}

// replayWords are the words of a story, for whoever reads the first one.
const replayWords = "A line is: place in the log, time, name of the fact, and what happened, with the reason in brackets. A chunk is a fixed piece\n" +
	"of the data. A round owns some; each slot (a GPU, or a machine's CPU) is dealt a share of them under a lease, claims what it\n" +
	"trains next, and sends one delta: how far its weights moved. Accepted deltas count their samples, and close into a merge, the\n" +
	"average that the next round starts from. Idle slots steal from slow ones; what a lost machine held goes back to the queue."

// replayed reads a run from the hub, or from an archive with no hub at all.
func (a *app) replayed(ctx context.Context, key, archive string, marks []uint64) (domain.RunID, *replay.Log, blob.Get, func(), error) {
	if archive != "" {
		f, err := findArchived(archive, key, marks)
		if err != nil {
			f.close()
			return "", nil, nil, nil, err
		}
		return f.Run, f.Log, f.Get, f.close, nil
	}
	cl, err := a.client()
	if err != nil {
		return "", nil, nil, nil, err
	}
	id, err := cl.runID(ctx, key)
	if err != nil {
		return "", nil, nil, nil, err
	}
	l := replay.New(registry(), id)
	l.TellMachines()
	for _, m := range marks {
		l.Mark(m)
	}
	return id, l, cl.getPart, func() {}, readRecords(ctx, cl, l)
}

// runID finds the run of an id, name or beginning of an id. One that the hub does not show may still be in its log.
func (c *client) runID(ctx context.Context, key string) (domain.RunID, error) {
	r, err := c.run(ctx, key)
	if domain.KindOf(err) == domain.KindNotFound {
		return domain.ParseID[domain.RunID]("run", key)
	}
	return r.ID, err
}

// bookkeeping are the facts that --brief leaves out: they are many, and what comes of them is told by others.
var bookkeeping = map[string]bool{
	run.NameChunksClaimed: true, run.NameChunkTrained: true, run.NameShardAssigned: true, run.NameShardReturned: true,
	run.NameLeaseReleased: true, run.NameContributionRequested: true,
}

// tell prints the story, and on standard error who did how much of it.
func (a *app) tell(l *replay.Log, id domain.RunID, brief bool) error {
	if l.State() == nil {
		return domain.NotFound("replay run "+string(id), "the log knows no such run", "list them with: tensorturn run list")
	}
	story := l.Story()
	if brief {
		story = slices.DeleteFunc(slices.Clone(story), func(s timeline.Line) bool { return bookkeeping[s.Name] })
	}
	if a.json {
		return a.object(story)
	}
	for _, s := range story {
		if s.Kind == event.KindMachine {
			s.Text = s.ID + " is " + s.Text
		}
		a.print("%7d  %s  %-24s %s", s.Seq, s.Time.Format("2006-01-02 15:04:05.000"), s.Name, clean(s.Text))
	}
	for _, w := range l.Work() {
		a.say("%s: %s counted, %s of the run", w.Machine, count(w.Samples, "sample"), percent(w.Samples, l.State().Ledger().Expected))
	}
	return nil
}

// verify recomputes the run's merges with objects from the hub or from a file.
func (a *app) verify(ctx context.Context, get blob.Get, l *replay.Log) (replay.Report, error) {
	dir, err := os.MkdirTemp("", "tensorturn-replay-")
	if err != nil {
		return replay.Report{}, domain.Unavailable("replay", "no temporary folder can be made", "set TMPDIR to a folder with space", err)
	}
	defer os.RemoveAll(dir)
	return l.Verify(ctx, get, &scratch{dir: dir}, func(done, all int) {
		if a.live && !a.quiet {
			fmt.Fprintf(a.err, "\r\x1b[Krecomputed %d of %d rounds", done, all)
			if done == all {
				fmt.Fprint(a.err, "\r\x1b[K")
			}
		}
	})
}

// scratch keeps the objects of the newest three recomputed rounds as files, in a folder for each round.
type scratch struct {
	dir   string
	round int
}

func (s *scratch) at(round int, d domain.Digest) string {
	return filepath.Join(s.dir, itoa(round), string(d))
}

func (s *scratch) Put(_ context.Context, d domain.Digest, data []byte) error {
	path := s.at(s.round, d)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func (s *scratch) Get(_ context.Context, d domain.Digest) ([]byte, error) {
	for r := s.round; r >= max(s.round-2, 0); r-- {
		if b, err := os.ReadFile(s.at(r, d)); err == nil {
			return b, nil
		}
	}
	return nil, domain.NotFound("read "+d.Short(), "it is neither stored nor recomputed", "")
}

func (s *scratch) Forget() {
	os.RemoveAll(filepath.Join(s.dir, itoa(s.round-2)))
	s.round++
}
