package sim

import (
	"bytes"
	"strings"

	"tensorturn/broker/wire"
	"tensorturn/domain/redact"
)

// secret is what trainers print when they fail, as programs do that print their settings.
const secret = "hunter2hunter2hunter2"

// leak is a line with the secret in it.
func (b *bias) leak() string {
	if b.what == wrongLeak {
		return secret
	}
	return "https://owner:" + secret + "@store/weights"
}

// bare reports whether the secret stands in what is written down or sent.
func bare(b []byte) bool { return bytes.Contains(b, []byte(secret)) }

// candid lets every second agent tell the reasons of failures as they are, as one of another make could: the hub must not rely on agents.
// No agent does so by itself.
func (p *process) candid(r *wire.SyncRequest) {
	for i := range r.Slots {
		s := &r.Slots[i]
		if bare([]byte(s.Error)) {
			fail("%s tells the hub a secret: %s", p.m.opt.ID, s.Error)
		}
		if s.Error != "" && r.Counter%2 == 0 {
			s.Error = strings.Replace(s.Error, redact.Mark, "owner:"+secret, 1)
			p.m.w.mark(markCandid)
		}
	}
}
