package main

import "tensorturn/domain/run"

// E5: each codec against fp32, with everything else equal. On 25 rounds 4 bits cost 0.8 %, three standard errors; the pilot
// with 78 rounds saw nothing. The sign codec of the reference is none of the product's.

// plantSparse sends only the largest of each 64 differences and loses the rest, under every codec's name.
const plantSparse = "sparse codes"

func codecs(l *lab) error {
	base, err := l.fused()
	if err != nil {
		return err
	}
	arms := []arm{base}
	arms[0].name = "fp32 both ways"
	for _, c := range []struct {
		name     string
		up, down run.Codec
		lossy    bool
		limit    float64
	}{
		{name: "int8 up", up: run.CodecInt8}, {name: "e3m0 up", up: run.CodecE3M0},
		{name: "e3m0 up and down", up: run.CodecE3M0, down: run.CodecE3M0}, {name: "2-bit up, with feedback", up: run.CodecTwoBit, lossy: true},
	} {
		a := base
		a.name, a.codec, a.down, a.lossy, a.topk = c.name, c.up, c.down, c.lossy, l.plant == plantSparse
		arms = append(arms, a)
	}
	got, err := l.results(arms...)
	if err != nil {
		return err
	}
	l.rows(arms, got)
	for i, limit := range []float64{0, 0.015, 0.015, 0.015, 0.02} {
		if i > 0 {
			l.atMost(arms[i].name+" against fp32", got[i], got[0], limit)
		}
	}
	return nil
}
