package v2

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"

	"tensorturn/broker/inference"
)

// maxVoteRows bounds the rows whose votes are told in parameters.
const maxVoteRows = 64

// answer appends the JSON object and, behind it, the outputs that are wanted as bytes. It gives the object's length.
func (b *buffer) answer(v *inference.Version, said inference.Answer, q *request) int {
	out := append(b.out, `{"model_name":"`...) // a name is an id: it needs no escapes
	out = append(out, v.Model...)
	out = append(out, `","model_version":"`...)
	out = strconv.AppendInt(out, int64(v.Number), 10)
	out = append(out, '"')
	if q.hasID {
		out = append(out, `,"id":`...)
		out = appendText(out, q.id)
	}
	if said.Used > 0 {
		out = appendVotes(out, said)
	}
	out = append(out, `,"outputs":[`...)
	wanted := q.outputs
	if !q.chosen || len(wanted) == 0 { // clients that choose none send an empty list
		wanted = allOutputs
	}
	for i, o := range wanted {
		if i > 0 {
			out = append(out, ',')
		}
		bytes := q.binary
		if o.binary != nil {
			bytes = *o.binary
		}
		if o.name == probsName {
			out = appendProbabilities(out, said, bytes)
		} else {
			out = appendLabels(out, said, bytes)
		}
	}
	out = append(out, `]}`...)
	object := len(out)
	for _, o := range wanted {
		if bytes := o.binary != nil && *o.binary || o.binary == nil && q.binary; !bytes {
			continue
		}
		if o.name == probsName {
			for _, p := range said.Probabilities {
				out = binary.LittleEndian.AppendUint32(out, math.Float32bits(p))
			}
			continue
		}
		for _, c := range said.Class {
			label := said.Facts.Classes[c]
			out = append(binary.LittleEndian.AppendUint32(out, uint32(len(label))), label...)
		}
	}
	b.out = out
	return object
}

var allOutputs = []output{{name: probsName}, {name: labelName}}

func appendProbabilities(out []byte, said inference.Answer, bytes bool) []byte {
	width := len(said.Facts.Classes)
	out = append(out, `{"name":"probabilities","datatype":"FP32","shape":[`...)
	out = strconv.AppendInt(out, int64(len(said.Class)), 10)
	out = append(out, ',')
	out = strconv.AppendInt(out, int64(width), 10)
	if bytes {
		return appendSize(out, 4*len(said.Probabilities))
	}
	out = append(out, `],"data":[`...)
	for i, p := range said.Probabilities {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendNumber(out, p)
	}
	return append(out, `]}`...)
}

// appendNumber writes the shortest text that reads back as the same FP32. JSON takes Go's exponents as they are.
func appendNumber(out []byte, p float32) []byte {
	format := byte('f')
	if p != 0 && p < 1e-6 {
		format = 'e'
	}
	return strconv.AppendFloat(out, float64(p), format, -1, 32)
}

func appendLabels(out []byte, said inference.Answer, bytes bool) []byte {
	out = append(out, `{"name":"label","datatype":"BYTES","shape":[`...)
	out = strconv.AppendInt(out, int64(len(said.Class)), 10)
	if bytes {
		size := 0
		for _, c := range said.Class {
			size += 4 + len(said.Facts.Classes[c])
		}
		return appendSize(out, size)
	}
	out = append(out, `],"data":[`...)
	for i, c := range said.Class {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendText(out, said.Facts.Classes[c])
	}
	return append(out, `]}`...)
}

func appendSize(out []byte, n int) []byte {
	out = append(out, `],"parameters":{"binary_data_size":`...)
	out = strconv.AppendInt(out, int64(n), 10)
	return append(out, `}}`...)
}

// appendVotes tells how an ensemble came to its answer: members_used is how many voted, agreement which part of them named
// the label (the mean over rows), votes who named what, rows parted by "; ": parameters hold plain values alone.
func appendVotes(out []byte, said inference.Answer) []byte {
	out = append(out, `,"parameters":{"members_used":`...)
	out = strconv.AppendInt(out, int64(said.Used), 10)
	mean := 0.0
	for _, x := range said.Agreement {
		mean += x
	}
	out = append(out, `,"agreement":`...)
	out = strconv.AppendFloat(out, mean/float64(len(said.Agreement)), 'f', -1, 64)
	if len(said.Class) <= maxVoteRows {
		out = append(out, `,"votes":`...)
		out = appendText(out, votesText(said))
	}
	return append(out, '}')
}

func votesText(said inference.Answer) string {
	var text []byte
	width := len(said.Facts.Classes)
	for r := range said.Class {
		if r > 0 {
			text = append(text, "; "...)
		}
		first := true
		for c, n := range said.Votes[r*width : (r+1)*width] {
			if n == 0 {
				continue
			}
			if !first {
				text = append(text, ", "...)
			}
			first = false
			text = append(text, said.Facts.Classes[c]...)
			text = append(text, ": "...)
			text = strconv.AppendInt(text, int64(n), 10)
		}
	}
	return string(text)
}

// appendText writes a JSON string.
func appendText(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			b, _ := json.Marshal(s) // a text cannot fail; what is not UTF-8 becomes U+FFFD
			return append(out, b...)
		}
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}
