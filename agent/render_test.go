package agent

import (
	"fmt"
	"strings"

	"tensorturn/broker/wire"
)

// line renders an effect for scenario files.
func line(e Effect) string {
	switch e := e.(type) {
	case Prepare:
		return fmt.Sprintf("slot %d: prepare %s for run %s from %s (epoch %d)", e.Slot, e.Unit, e.Run, orNone(string(e.Base)), e.Epoch)
	case Train:
		return fmt.Sprintf("slot %d: train chunk %d, then %d in weights (epoch %d)", e.Slot, e.Chunk, e.Boundary, e.Epoch)
	case MakeDelta:
		return fmt.Sprintf("slot %d: make delta %d of the first %d chunks against %s, codec %s (epoch %d)", e.Slot, e.Number, e.Boundary, e.Base, e.Codec, e.Epoch)
	case Upload:
		return fmt.Sprintf("slot %d: upload %s (epoch %d)", e.Slot, e.Blob, e.Epoch)
	case Reset:
		if e.Boundary > 0 {
			return fmt.Sprintf("slot %d: reset to the snapshot of %d chunks (epoch %d)", e.Slot, e.Boundary, e.Epoch)
		}
		return fmt.Sprintf("slot %d: reset to base %s (epoch %d)", e.Slot, e.Base, e.Epoch)
	case RunInit:
		return fmt.Sprintf("slot %d: make the first base (epoch %d)", e.Slot, e.Epoch)
	case RunEvaluate:
		return fmt.Sprintf("slot %d: evaluate %s (epoch %d)", e.Slot, e.Model, e.Epoch)
	case KeepMember:
		return fmt.Sprintf("slot %d: keep a checkpoint of the member (epoch %d)", e.Slot, e.Epoch)
	case FinishMember:
		return fmt.Sprintf("slot %d: keep the member's weights (epoch %d)", e.Slot, e.Epoch)
	case PredictMember:
		return fmt.Sprintf("slot %d: answer the held-out rows (epoch %d)", e.Slot, e.Epoch)
	case Abandon:
		if e.Keep {
			return fmt.Sprintf("slot %d: abandon epoch %d, keeping its snapshots", e.Slot, e.Epoch)
		}
		return fmt.Sprintf("slot %d: abandon epoch %d", e.Slot, e.Epoch)
	case CloseTrainer:
		return fmt.Sprintf("slot %d: close the trainer", e.Slot)
	case SendSync:
		return renderSync(&e.Request)
	case UploadAgain:
		return "send " + string(e.Blob) + " again"
	case DropDeltas:
		return fmt.Sprintf("drop deltas of run %s up to round %d", e.Run, e.Round)
	case SaveHead:
		return fmt.Sprintf("save head %q", e.Head)
	case SaveCredential:
		return "save credential " + e.JWT
	case Exit:
		return "exit: " + e.Reason
	}
	panic(fmt.Sprintf("no rendering for %T", e))
}

func renderSync(r *wire.SyncRequest) string {
	var b strings.Builder
	fmt.Fprintf(&b, "sync %d", r.Counter)
	if r.Stopping {
		b.WriteString(" stopping")
	}
	if r.Renew {
		b.WriteString(" renew")
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(&b, " missing=%v", r.Missing)
	}
	for _, s := range r.Slots {
		fmt.Fprintf(&b, "\n  slot %d: %s", s.Index, s.Phase)
		if s.Run != "" {
			fmt.Fprintf(&b, " %s epoch=%d number=%d", s.Run, s.Epoch, s.Number)
		}
		if len(s.Trained) > 0 {
			b.WriteString(" trained=")
			for i, c := range s.Trained {
				if i > 0 {
					b.WriteString(",")
				}
				fmt.Fprint(&b, c.Chunk)
			}
		}
		if s.Offer != nil {
			fmt.Fprintf(&b, " offer=%s chunks=%v boundaries=%v steps=%d", s.Offer.Blob, s.Offer.Chunks, s.Offer.Boundaries, s.Offer.Steps)
		}
		if s.Late != nil {
			fmt.Fprintf(&b, " late=%d number=%d chunks=%v boundaries=%v", s.Late.Epoch, s.Late.Number, s.Late.Chunks, s.Late.Boundaries)
		}
		if s.Init != nil {
			fmt.Fprintf(&b, " init=%s", s.Init.Base)
		}
		if s.Eval != nil {
			fmt.Fprintf(&b, " accuracy=%v", s.Eval.Accuracy)
		}
		if m := s.Member; m != nil {
			fmt.Fprintf(&b, " chunks=%d", m.Chunks)
			if m.Checkpoint != nil {
				fmt.Fprintf(&b, " checkpoint=%d:%s", m.Checkpoint.Chunks, m.Checkpoint.Blob)
				if n := m.Checkpoint.Bytes; n > 0 {
					fmt.Fprintf(&b, ":%d bytes", n)
				}
			}
			if m.Trained != nil {
				fmt.Fprintf(&b, " weights=%s", m.Trained.Weights)
			}
			if m.Outputs != nil {
				fmt.Fprintf(&b, " outputs=%s", m.Outputs.Blob)
			}
		}
		if s.Error != "" {
			fmt.Fprintf(&b, " error=%q", s.Error)
		}
		if s.Speed > 0 {
			fmt.Fprintf(&b, " speed=%v", s.Speed)
		}
	}
	return b.String()
}

func orNone(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
