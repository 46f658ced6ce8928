package usage

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

var start = time.Date(2026, 11, 30, 10, 59, 0, 0, time.UTC)

// told gives facts of run r-1 to a view, each a number of seconds after the start.
type told struct {
	v   *View
	seq uint64
}

func (t *told) at(seconds int, ds ...event.Data) {
	for _, d := range ds {
		t.seq++
		kind := event.KindRun
		if _, ok := d.(*pool.InferenceCounted); ok {
			kind = event.KindPool
		}
		t.v.Apply(event.Envelope{Seq: t.seq, Kind: kind, Agg: "r-1", Time: start.Add(time.Duration(seconds) * time.Second), Data: d})
	}
}

func submitted(trainer string) *run.Submitted {
	return &run.Submitted{Spec: run.Spec{Trainer: trainer, Chunk: 100, Epochs: 2}, Data: run.Dataset{Samples: 400, Bytes: 4000}}
}

// The story of two machines and two rounds: who is counted what.
func TestCounts(t *testing.T) {
	x := told{v: New()}
	x.at(0, submitted(run.Builtin), &run.LeaseGranted{Slot: "a/0", Unit: run.UnitInit})
	x.at(10, &run.Initialised{Slot: "a/0"}, &run.LeaseReleased{Slot: "a/0"})
	x.at(20, &run.LeaseGranted{Slot: "a/0", Unit: run.UnitTrain, Round: 1}, &run.LeaseGranted{Slot: "b/0", Unit: run.UnitTrain, Round: 1},
		&run.LeaseGranted{Slot: "b/1", Unit: run.UnitTrain, Round: 1})
	x.at(30, &run.ChunkTrained{Slot: "a/0"}, &run.ChunkTrained{Slot: "b/0"}, &run.ChunkTrained{Slot: "b/0"}, &run.ChunkTrained{Slot: "b/1"})
	x.at(40, &run.ContributionAccepted{Slot: "a/0", Number: 1, Samples: 100, Steps: 10, Bytes: 70}, &run.ContributionRefused{Slot: "b/0", Bytes: 71},
		&run.ContributionAccepted{Slot: "b/1", Number: 1, Samples: 90, Steps: 9, Bytes: 72})
	x.at(50, &run.ContributionRevoked{Slot: "b/1", Number: 1, Samples: 90})
	x.at(60, &run.LeaseReleased{Slot: "a/0"}, &run.LeaseExpired{Slot: "b/0"}, &run.TaskFailed{Slot: "b/1"}, &run.RoundMerged{Round: 1, BaseBytes: 500})
	x.at(70, &run.LeaseGranted{Slot: "a/0", Unit: run.UnitEvaluate, Round: 1}, &run.LeaseGranted{Slot: "b/0", Unit: run.UnitTrain, Round: 2})
	x.at(80, &run.EvaluationFailed{Slot: "a/0"}, &run.LeaseGranted{Slot: "a/0", Unit: run.UnitTrain, Round: 2})
	for range 5 {
		x.at(90, &run.ChunkTrained{Slot: "b/0"})
	}
	x.at(100, &run.ContributionAccepted{Slot: "b/0", Number: 2, Samples: 500, Steps: 50, Bytes: 73}, &run.RoundMerged{Round: 2, BaseBytes: 500})
	got := x.v.Since(time.Time{})
	row := func(id string, c Counts) Row { return Row{ID: id, Counts: c.told()} }
	a := Counts{Micros: (10 + 40 + 10 + 20) * 1e6, Samples: 100, Steps: 10, BytesUp: 70 + 500, BytesDown: 1000 + 500}
	b := Counts{Micros: (40 + 40 + 30) * 1e6, Samples: 500, Steps: 50, BytesUp: 71 + 72 + 73, BytesDown: 4000 + 500 + 500}
	sum := a
	sum.add(b)
	want := Report{Until: start.Add(100 * time.Second), Total: sum.told(), Runs: []Row{row("r-1", sum)}, Machines: []Row{row("a", a), row("b", b)}, Keys: []Row{}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	x.at(3600, &run.Completed{}) // ends what is leased: a/0 since 80, b/0 since 70
	if got := x.v.Since(time.Time{}); got.Total.Micros != sum.Micros+(3500+3500)*1e6 || len(x.v.leases) != 0 || len(x.v.work) != 0 {
		t.Errorf("after the end: %+v, %d leases", got.Total, len(x.v.leases))
	}
	// 10:59:00 to 11:00:00 is the first hour; a lease is cut at its end.
	if got := x.v.Since(start.Add(90 * time.Second)); got.Total.Micros != (10+3520+3530)*1e6 || got.Total.Samples != 500 || !got.Since.Equal(start.Add(time.Minute)) {
		t.Errorf("from 11:00: %+v since %s", got.Total, got.Since)
	}
}

// A program's code is fetched whole, once a machine; its data stay where they are.
func TestCodeIsFetchedWhole(t *testing.T) {
	x := told{v: New()}
	x.at(0, submitted(run.Process), &run.LeaseGranted{Slot: "a/0", Unit: run.UnitInit}, &run.LeaseGranted{Slot: "a/1", Unit: run.UnitInit},
		&run.ChunkTrained{Slot: "a/0"})
	if got := x.v.Since(time.Time{}).Total.BytesDown; got != 4000 {
		t.Errorf("%d bytes", got)
	}
}

// A member that two machines trained is counted for both; one that is dropped for nobody.
func TestMembers(t *testing.T) {
	x := told{v: New()}
	x.at(0, submitted(run.Builtin), &run.LeaseGranted{Slot: "a/0", Unit: run.UnitMember, Member: 1}, &run.LeaseGranted{Slot: "c/0", Unit: run.UnitMember, Member: 2})
	x.at(10, &run.MemberCheckpointed{Slot: "a/0", Member: 1, Samples: 300, Bytes: 700}, &run.MemberCheckpointed{Slot: "c/0", Member: 2, Samples: 500})
	x.at(20, &run.LeaseExpired{Slot: "a/0"}, &run.MemberRequeued{Member: 1}, &run.MemberDropped{Member: 2, Samples: 500}, &run.LeaseReleased{Slot: "c/0"},
		&run.LeaseGranted{Slot: "b/0", Unit: run.UnitMember, Member: 1})
	x.at(30, &run.MemberTrained{Slot: "b/0", Member: 1, Samples: 800, Steps: 25, Params: 10})
	got := x.v.Since(time.Time{})
	for i, want := range []Counts{
		{Micros: 20e6, Samples: 300, Steps: 9, BytesUp: 700, BytesDown: 4000}, {Micros: 10e6, Samples: 500, Steps: 16, BytesUp: 40, BytesDown: 4000}, {Micros: 20e6, BytesDown: 4000},
	} {
		if got.Machines[i].Counts != want.told() {
			t.Errorf("machine %s: %+v, want %+v", got.Machines[i].ID, got.Machines[i].Counts, want)
		}
	}
}

// Inference is counted for its key and the run that made the model.
func TestInference(t *testing.T) {
	x := told{v: New()}
	for minute := range 3 {
		x.at(60*minute, &pool.InferenceCounted{Key: "k-1", Model: "m", Version: 1, Run: "r-1", Minute: start.Add(time.Duration(minute) * time.Minute).UnixMicro(), Requests: 5, Rows: 7})
	}
	got := x.v.Since(time.Time{})
	want := Counts{Requests: 15, Rows: 21}
	if got.Total != want || len(got.Keys) != 1 || got.Keys[0].Counts != want || got.Keys[0].ID != "k-1" || len(got.Runs) != 1 || got.Runs[0].Counts != want || len(got.Machines) != 0 {
		t.Errorf("%+v", got)
	}
	if got := x.v.Since(start.Add(time.Hour)); got.Total.Requests != 10 {
		t.Errorf("behind 11:00: %+v", got.Total)
	}
}

// However long a pool lives, the view stays within its limit, forgets no count, and keeps the hours of the last month while
// it can.
func TestCellsAreBounded(t *testing.T) {
	for name, runs := range map[string]int{"few runs for years": 3, "a run an hour": 1 << 20} {
		v := New()
		const perHour, hours = 12, 500 * 24
		for h := range hours {
			at := start.Add(time.Duration(h) * time.Hour)
			v.newest = at
			for m := range perHour {
				v.count(at, cell{run: domain.RunID(fmt.Sprint("r-", h%runs)), machine: domain.MachineID(fmt.Sprint("m-", m))}, Counts{Samples: 1})
			}
			if len(v.cells) > maxCells {
				t.Fatalf("%s: %d cells", name, len(v.cells))
			}
		}
		r := v.Since(time.Time{})
		if r.Total.Samples != perHour*hours || len(r.Machines) != perHour || r.Machines[0].Samples != hours {
			t.Errorf("%s: %d samples, want %d", name, r.Total.Samples, perHour*hours)
		}
		if got := v.Since(v.newest.Add(-20 * 24 * time.Hour)).Total.Samples; got != perHour*(20*24+1) {
			t.Errorf("%s: the last twenty days have %d samples, want %d", name, got, perHour*(20*24+1))
		}
	}
}

// The form is a contract.
func TestReportAsJSON(t *testing.T) {
	x := told{v: New()}
	x.at(0, submitted(run.Builtin), &run.LeaseGranted{Slot: "a/0", Unit: run.UnitTrain, Round: 1})
	x.at(1, &run.ContributionAccepted{Slot: "a/0", Number: 1, Samples: 100, Steps: 10, Bytes: 70})
	b, err := json.Marshal(x.v.Since(start))
	want := `{"since":"2026-11-30T10:00:00Z","until":"2026-11-30T10:59:01Z","total":{"slot_seconds":1,"samples":100,"steps":10,"bytes_up":70,"bytes_down":0,"requests":0,"rows":0},` +
		`"runs":[{"id":"r-1","slot_seconds":1,"samples":100,"steps":10,"bytes_up":70,"bytes_down":0,"requests":0,"rows":0}],` +
		`"machines":[{"id":"a","slot_seconds":1,"samples":100,"steps":10,"bytes_up":70,"bytes_down":0,"requests":0,"rows":0}],"keys":[]}`
	if string(b) != want || err != nil {
		t.Errorf("%s, want\n%s", b, want)
	}
}
