package merge_test

import (
	"testing"

	"tensorturn/domain/merge"
	"tensorturn/domain/run"
)

// The names stand in the log under run's types.
func TestNamesAreThoseOfRun(t *testing.T) {
	for ours, theirs := range map[string]string{
		string(merge.CodecFP32): string(run.CodecFP32), string(merge.CodecE3M0): string(run.CodecE3M0),
		string(merge.CodecInt8): string(run.CodecInt8), string(merge.CodecTwoBit): string(run.CodecTwoBit),
		string(merge.FaultUnreadable): string(run.RefusedUnreadable), string(merge.FaultBase): string(run.RefusedBase),
		string(merge.FaultLayout): string(run.RefusedLayout), string(merge.FaultNotFinite): string(run.RefusedNotFinite),
	} {
		if ours != theirs {
			t.Errorf("%q is %q in run", ours, theirs)
		}
	}
	if merge.MaxInputs != run.MaxRoundChunks {
		t.Errorf("a round may have %d chunks, a merge %d deltas", run.MaxRoundChunks, merge.MaxInputs)
	}
}
