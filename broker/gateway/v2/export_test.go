package v2

import "tensorturn/broker/inference"

// RecordNow has the minutes recorded that have passed.
func (a *API) RecordNow() { a.usage.record(a.cfg.Now().Unix() / 60) }

// Parsed reads a request of the given facts as the API does and gives what comes of it.
func Parsed(body []byte, header int, facts inference.Facts) (values []float32, outputs int, why string) {
	if header < 0 || header > len(body) {
		header = len(body)
	}
	q, f := parse(body[:header])
	if f == nil {
		f = q.checkOutputs()
	}
	if f != nil {
		return nil, 0, f.why
	}
	x, rows, f := q.rows(&facts, body[header:])
	if f != nil {
		return nil, 0, f.why
	}
	if rows*len(facts.Columns) != len(x) {
		panic("rows and values differ")
	}
	return x, len(q.outputs), ""
}

// Half is the value of a binary16.
func Half(h uint16) float32 { return half(h) }

// MaxTold bounds what metadata tell of columns.
const MaxTold = maxTold
