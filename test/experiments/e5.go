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
	arms, limits := []arm{base}, []float64{0}
	arms[0].name = "fp32 both ways"
	for _, c := range []struct {
		name     string
		up, down run.Codec
		limit    float64 // of what it may cost
	}{
		{"int8 up", run.CodecInt8, "", 0.015}, {"e3m0 up", run.CodecE3M0, "", 0.015},
		{"e3m0 up and down", run.CodecE3M0, run.CodecE3M0, 0.015}, {"2-bit up, with feedback", run.CodecTwoBit, "", 0.02},
	} {
		a := base
		a.name, a.codec, a.down, a.lossy, a.topk = c.name, c.up, c.down, c.up.Feedback(), l.plant == plantSparse
		arms, limits = append(arms, a), append(limits, c.limit)
	}
	got, err := l.results(arms...)
	if err != nil {
		return err
	}
	l.rows(arms, got)
	for i := 1; i < len(arms); i++ {
		l.atMost(arms[i].name+" against fp32", got[i], got[0], limits[i])
	}
	return nil
}
