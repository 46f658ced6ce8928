package trainer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tensorturn/domain"
)

// steady is a trainer whose steps take a fixed time on the bubble's clock.
type steady struct {
	Trainer
	step  time.Duration
	steps int
}

func (s *steady) Train(ctx context.Context, _ domain.ChunkID, progress func(Progress)) (Result, error) {
	for i := range s.steps {
		if err := ctx.Err(); err != nil {
			return Result{Steps: i}, err
		}
		<-time.After(s.step)
		progress(Progress{Samples: 1})
	}
	return Result{Steps: s.steps}, nil
}

func (s *steady) Evaluate(ctx context.Context, progress func(Progress)) (Metrics, error) {
	r, err := s.Train(ctx, 0, progress)
	return Metrics{Samples: r.Steps}, err
}

func TestThrottleTakesInverseTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		factor float64
		step   time.Duration
		steps  int
		want   time.Duration
	}{
		{"quarter", 0.25, 10 * time.Millisecond, 100, 4 * time.Second},
		{"half", 0.5, 10 * time.Millisecond, 10, 200 * time.Millisecond},
		{"short steps add up", 0.5, 100 * time.Microsecond, 1000, 200 * time.Millisecond},
		{"whole", 1, 10 * time.Millisecond, 10, 100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow, err := Throttle(&steady{step: c.step, steps: c.steps}, c.factor)
				if err != nil {
					t.Fatal(err)
				}
				calls := 0
				start := time.Now()
				r, err := slow.Train(t.Context(), 0, func(Progress) { calls++ })
				if err != nil || r.Steps != c.steps || calls != c.steps {
					t.Fatalf("%d steps, %d calls, %v", r.Steps, calls, err)
				}
				if took := time.Since(start); took < c.want-minWait || took > c.want+minWait {
					t.Errorf("took %v, want %v", took, c.want)
				}
				start = time.Now()
				if _, err := slow.Evaluate(t.Context(), quiet(c.factor)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < c.want-minWait {
					t.Errorf("evaluation took %v, want %v", took, c.want)
				}
			})
		})
	}
}

// TestThrottleForgivesOthers holds that time in which others had the processor is not multiplied, and that more than the
// time that has passed is never charged.
func TestThrottleForgivesOthers(t *testing.T) {
	for _, c := range []struct {
		name string
		used time.Duration // a step of 10 ms
		want time.Duration
	}{
		{"a tenth was its own", time.Millisecond, time.Second},
		{"all was its own", 10 * time.Millisecond, 10 * time.Second},
		{"two threads", 20 * time.Millisecond, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				used := time.Duration(0)
				slow := &throttled{factor: 0.1, used: func() time.Duration { return used }}
				p := slow.pace(t.Context(), nil)
				defer p.timer.Stop()
				start := time.Now()
				for range 100 {
					<-time.After(10 * time.Millisecond)
					used += c.used
					p.step(Progress{})
				}
				if took := time.Since(start); took < c.want-minWait || took > c.want+minWait {
					t.Errorf("took %v, want %v", took, c.want)
				}
			})
		})
	}
}

// inside is a trainer that computes in this process.
type inside struct{ steady }

func (*inside) InProcess() bool { return true }

func TestThrottleLooksAtProcessorOfOwnTrainersOnly(t *testing.T) {
	clock := processorClock()
	own, err := Throttle(&inside{}, 0.5)
	if err != nil || (own.(*throttled).used == nil) != (clock == nil) {
		t.Errorf("processor time is not looked at: %v", err)
	}
	other, err := Throttle(&steady{}, 0.5)
	if err != nil || other.(*throttled).used != nil {
		t.Errorf("a process of its own would not be slowed: %v", err)
	}
	if clock == nil {
		return
	}
	for before := clock(); clock() == before; { // ends when some time is used
	}
}

// quiet gives no progress function where the throttle must cope with that; the bare trainer needs one.
func quiet(factor float64) func(Progress) {
	if factor < 1 {
		return nil
	}
	return func(Progress) {}
}

func TestThrottleWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, err := Throttle(&steady{step: time.Second, steps: 10}, 0.001)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		r, err := slow.Train(ctx, 0, nil)
		if !errors.Is(err, context.DeadlineExceeded) || r.Steps != 1 {
			t.Errorf("%d steps, error %v", r.Steps, err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("returned after %v", took)
		}
	})
}

func TestThrottleRefusesFactors(t *testing.T) {
	for _, f := range []float64{0, -1, 1.01} {
		if _, err := Throttle(&steady{}, f); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("factor %v gave %v", f, err)
		}
	}
}
