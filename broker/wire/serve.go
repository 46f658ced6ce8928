package wire

import (
	"encoding/binary"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Limits of predictions on machines.
const (
	MaxHeld      = 256       // models that one machine holds
	MaxAskBytes  = 512 << 10 // of the values of one question, and of its answer: half of a message
	MaxAskLeft   = 600.0     // seconds that somebody waits for an answer
	maxMarkBytes = 64
)

// Holds is the hub's word on the models that a machine shall hold ready for predictions, beside what its slots do.
type Holds struct {
	Mark string `msgpack:"mark"` // names this list; the agent says it back, and the list is not sent again
	Runs []Hold `msgpack:"runs"`
}

// Hold names models of one run.
type Hold struct {
	Run    domain.RunID `msgpack:"run"`
	Spec   run.Spec     `msgpack:"spec"` // the run's, not a member's
	Data   run.Dataset  `msgpack:"data"`
	Models []HeldModel  `msgpack:"models"`
}

// HeldModel is one set of weights.
type HeldModel struct {
	Member  int           `msgpack:"member"` // of an ensemble, from 1; 0 for a fused run's model
	Weights domain.Digest `msgpack:"weights"`
	Layout  domain.Digest `msgpack:"layout"`
}

// Holding is what a machine says of the models it holds. Positions count through Holds.Runs and their Models, from 0.
type Holding struct {
	Room   int          `msgpack:"room"` // models it may hold at most; 0 for a machine that serves none
	Mark   string       `msgpack:"mark,omitempty"`
	Ready  []int        `msgpack:"ready,omitempty"`
	Failed []FailedHold `msgpack:"failed,omitempty"`
	// Tells says that List holds what Mark names: the hub said MarkAsks.
	Tells bool      `msgpack:"tells,omitempty"`
	List  []HeldKey `msgpack:"list,omitempty"`
}

// HeldKey names a model that a machine was told to hold.
type HeldKey struct {
	Run     domain.RunID  `msgpack:"run"`
	Member  int           `msgpack:"member"`
	Weights domain.Digest `msgpack:"weights"`
}

// MarkAsks stands for a list that the hub does not know, because it has started anew: the machine shall say what is on it.
const MarkAsks = "?"

// FailedHold is a model that could not be loaded; the machine tries again after a while.
type FailedHold struct {
	Position int   `msgpack:"pos"`
	Error    Error `msgpack:"error"`
}

// Ask is a question of the hub: rows for one model. It goes to one machine on LocalAsk.
type Ask struct {
	ID      uint64        `msgpack:"id"`
	Run     domain.RunID  `msgpack:"run"`
	Member  int           `msgpack:"member"`
	Weights domain.Digest `msgpack:"weights"`
	Rows    int           `msgpack:"rows"`
	Values  []byte        `msgpack:"values"` // raw features, FP32 little-endian [rows, columns]
	Left    float64       `msgpack:"left"`   // seconds until nobody waits any more
}

// Said is a machine's answer, on LocalAnswer.
type Said struct {
	ID     uint64 `msgpack:"id"`
	Values []byte `msgpack:"values,omitempty"` // probabilities, FP32 little-endian [rows, classes]
	Away   bool   `msgpack:"away,omitempty"`   // the machine has not begun: it does not hold the model, or has too much to do
	Error  *Error `msgpack:"error,omitempty"`
}

// EncodeHolds gives the bytes that a mark is made of.
func EncodeHolds(runs []Hold) ([]byte, error) { return encode("list of models", runs) }

// EncodeAsk gives the bytes of a question.
func EncodeAsk(a *Ask) ([]byte, error) { return encode("question", a) }

// EncodeSaid gives the bytes of an answer.
func EncodeSaid(s *Said) ([]byte, error) { return encode("answer", s) }

// DecodeAsk reads a question with the care of DecodeReply.
func DecodeAsk(b []byte) (*Ask, error) {
	a := &Ask{}
	if err := decode("question", b, a); err != nil {
		return nil, err
	}
	c := &checker{op: "decode question"}
	c.id("run", string(a.Run), false)
	c.require(a.Member >= 0 && a.Member <= run.MaxMembers+1, "there is no member %d", a.Member)
	c.digest("weights", a.Weights, false)
	c.atMost("bytes of values", len(a.Values), MaxAskBytes)
	c.require(a.Rows >= 1 && len(a.Values) > 0 && len(a.Values)%(4*a.Rows) == 0, "the values are no whole rows")
	c.require(a.Left > 0 && a.Left <= MaxAskLeft, "the time left is out of range")
	return a, c.result()
}

// DecodeSaid reads a machine's bytes. They are foreign.
func DecodeSaid(b []byte) (*Said, error) {
	s := &Said{}
	if err := decode("answer", b, s); err != nil {
		return nil, err
	}
	c := &checker{op: "decode answer"}
	c.atMost("bytes of values", len(s.Values), MaxAskBytes)
	c.require(len(s.Values)%4 == 0, "the values are cut")
	if s.Error != nil {
		c.refusal(*s.Error)
	}
	return s, c.result()
}

// PackValues gives the bytes of FP32 values.
func PackValues(values []float32) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// UnpackValues reads what PackValues wrote.
func UnpackValues(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func (c *checker) refusal(e Error) {
	c.text("error", e.Why)
	c.text("hint", e.Next)
	c.text("error kind", string(e.Kind))
	c.require(e.Kind != "", "error without a kind")
}

func (c *checker) holding(h *Holding) {
	if h == nil {
		return
	}
	c.require(h.Room >= 0 && h.Room <= MaxHeld, "room for models is out of range")
	c.require(len(h.Mark) <= maxMarkBytes, "the mark of the models is too long")
	c.atMost("models held", len(h.Ready), MaxHeld)
	c.atMost("models that failed", len(h.Failed), MaxHeld)
	c.atMost("models listed", len(h.List), MaxHeld)
	for _, k := range h.List {
		c.id("run of a model", string(k.Run), false)
		c.digest("weights of a model", k.Weights, false)
		c.require(k.Member >= 0 && k.Member <= run.MaxMembers+1, "there is no member %d", k.Member)
	}
	for _, p := range h.Ready {
		c.require(p >= 0 && p < MaxHeld, "a model's position is out of range")
	}
	for _, f := range h.Failed {
		c.require(f.Position >= 0 && f.Position < MaxHeld, "a model's position is out of range")
		c.refusal(f.Error)
	}
}

func (c *checker) holds(h *Holds) {
	if h == nil {
		return
	}
	c.require(h.Mark != "" && len(h.Mark) <= maxMarkBytes, "the mark of the models is empty or too long")
	c.atMost("runs of models", len(h.Runs), MaxHeld)
	n := 0
	for _, r := range h.Runs {
		c.id("run of a model", string(r.Run), false)
		c.digest("data of a model", r.Data.Blob, false)
		n += len(r.Models)
		c.atMost("models to hold", n, MaxHeld)
		for _, m := range r.Models {
			c.require(m.Member == 0 || r.Spec.Ensemble != nil && m.Member > 0 && m.Member <= r.Spec.Ensemble.Members+1, "there is no member %d", m.Member)
			c.digest("weights of a model", m.Weights, false)
			c.digest("layout of a model", m.Layout, false)
		}
		if c.err != nil {
			return
		}
	}
}
