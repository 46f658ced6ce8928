package wire_test

import (
	"strings"
	"testing"

	"tensorturn/broker/wire"
)

func TestAcceptReply(t *testing.T) {
	for reply, want := range map[string]bool{
		"_R_.abc.def": true, "_INBOX.x.1": true,
		"":                                    false,
		"$JS.ACK.EVENTS.c.1.1.1.1.0":          false,
		"$JS.API.STREAM.DELETE.EVENTS":        false,
		"$JS.hub.API.STREAM.PURGE.EVENTS":     false,
		"tt.ev.run.r1.submitted":              false,
		"tt.v1.to.AAA.wake":                   false,
		"$SYS.REQ.SERVER.PING":                false,
		"_R_":                                 false,
		"_INBOX":                              false,
		" _INBOX.x":                           false,
		"$O.BLOBS.C.x":                        false,
		"$KV.x.y":                             false,
		strings.Repeat("a", 5000) + "_INBOX.": false,
	} {
		if got := wire.AcceptReply(reply); got != want {
			t.Errorf("AcceptReply(%.60q) = %v, want %v", reply, got, want)
		}
	}
}

func TestAccountOfSync(t *testing.T) {
	acc := "A" + strings.Repeat("B", 55)
	if got, ok := wire.AccountOfSync(wire.SyncSubject(acc)); !ok || got != acc {
		t.Fatalf("got %q, %v", got, ok)
	}
	for _, s := range []string{
		"", "tt.v1.from.sync", "tt.v1.from..sync", "tt.v1.from." + acc, acc + ".sync",
		wire.SyncSubject(acc[1:]), wire.SyncSubject("*"), wire.SyncSubject(acc + "." + acc),
		wire.SyncSubject("U" + acc[1:]), wire.SyncSubject(strings.ToLower(acc)), wire.WakeSubject(acc),
	} {
		if _, ok := wire.AccountOfSync(s); ok {
			t.Errorf("%q was taken for a sync subject", s)
		}
	}
}

// A question, a hint and a sync are no answers, and an answer is no sync.
func TestAccountOfAnswer(t *testing.T) {
	acc := "A" + strings.Repeat("B", 55)
	if got, ok := wire.AccountOfAnswer(wire.AnswerSubject(acc)); !ok || got != acc {
		t.Fatalf("got %q, %v", got, ok)
	}
	for _, s := range []string{"", wire.SyncSubject(acc), wire.AskSubject(acc), wire.AnswerSubject("*"), wire.AnswerSubject(acc[1:]), wire.AnswerSubject(acc) + ".answer"} {
		if _, ok := wire.AccountOfAnswer(s); ok {
			t.Errorf("%q was taken for an answer", s)
		}
	}
	if _, ok := wire.AccountOfSync(wire.AnswerSubject(acc)); ok {
		t.Error("an answer was taken for a sync")
	}
}
