package sim

import (
	"container/heap"
	"fmt"
	"math"
	"time"

	"tensorturn/domain/permute"
)

// Limits of one world. A world that passes them is caught in a loop.
const (
	maxInstant = 20_000    // things that happen at one moment
	maxEvents  = 3_000_000 // things that happen at all
)

// kernel is virtual time: what will happen, ordered by when and then by who asked first. It has no goroutine and no
// clock; time moves to the next thing that was asked for.
type kernel struct {
	now     time.Duration
	queue   agenda
	asked   uint64
	done    int
	instant int // things done at now
}

type appointment struct {
	at   time.Duration
	turn uint64
	do   func()
}

// at asks for do at a time, not before now.
func (k *kernel) at(t time.Duration, do func()) {
	k.asked++
	heap.Push(&k.queue, appointment{at: max(t, k.now), turn: k.asked, do: do})
}

// after asks for do in d.
func (k *kernel) after(d time.Duration, do func()) { k.at(k.now+d, do) }

// next does what is due next; false when nothing is or it lies behind the end.
func (k *kernel) next(end time.Duration) bool {
	if len(k.queue) == 0 || k.queue[0].at > end {
		k.now = max(k.now, end)
		return false
	}
	a := heap.Pop(&k.queue).(appointment)
	if a.at > k.now {
		k.instant = 0
	}
	k.now = a.at
	k.done++
	k.instant++
	if k.instant > maxInstant || k.done > maxEvents {
		fail("time stands still: %d things happened at %v, %d in all", k.instant, k.now, k.done)
	}
	a.do()
	return true
}

// agenda is a heap by (at, turn).
type agenda []appointment

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].turn < a[j].turn
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(appointment)) }
func (a *agenda) Pop() any {
	o := *a
	x := o[len(o)-1]
	o[len(o)-1] = appointment{}
	*a = o[:len(o)-1]
	return x
}

// luck is the random source of one component. Each has its own, so that the draws of one never shift another's.
type luck struct{ *permute.Source }

// Streams of luck. Machines have one each, from streamMachine on.
const (
	streamOptions uint64 = iota + 1
	streamNemesis
	streamHub
	streamStore
	streamMachine
)

func newLuck(seed, stream uint64) luck { return luck{permute.NewSource(seed, stream)} }

func (l luck) chance(p float64) bool          { return l.Float64() < p }
func (l luck) between(lo, hi float64) float64 { return lo + l.Float64()*(hi-lo) }
func (l luck) pick(n int) int                 { return int(l.Below(uint64(n))) }
func (l luck) number(lo, hi int) int          { return lo + l.pick(hi-lo+1) }

func (l luck) span(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(l.Float64()*float64(hi-lo))
}

// wait is exponential with a mean.
func (l luck) wait(mean time.Duration) time.Duration {
	return time.Duration(-math.Log(1-l.Float64()) * float64(mean))
}

// violation is a broken invariant, found by a checker.
type violation struct{ sentence string }

func (v violation) Error() string { return v.sentence }

// fail ends the world with the checker's sentence.
func fail(format string, args ...any) { panic(violation{fmt.Sprintf(format, args...)}) }
