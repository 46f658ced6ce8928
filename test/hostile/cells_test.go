package hostile

import (
	"fmt"
	"strings"

	"tensorturn/broker/wire"
)

// inbox is where attackers want answers.
const inbox = "_INBOX.attacker"

// shot is one publish of an attacker.
type shot struct{ subject, reply, header, body string }

// cell is one attack: what is subscribed to, then what is published.
type cell struct {
	name   string
	listen []string // "subject" or "subject queue"
	shots  []shot
}

// listening is the subscribe half of the matrix. Queue groups try to take messages away from those they are meant for.
func listening(w *world) []cell {
	var out []cell
	b := w.b.Account
	for _, s := range []string{
		">", "*", "*.>", "*.*.*.*", "tt.>", "tt.v1.>", "hub.>", "lax.>",
		"tt.ev.>", "tt.ev.run.r1.claimed", "tt.hb.>", "tt.v1.events.>",
		"tt.v1.from.>", "tt.v1.from.*.sync", wire.SyncSubject(b), "tt.v1.to.>", "tt.v1.to.*.wake", wire.WakeSubject(b),
		"tt.v1.to.*.ask", wire.AskSubject(b), "tt.v1.from.*.answer", wire.AnswerSubject(b), wire.LocalAsk, wire.LocalAnswer, wire.LocalSync,
		"$JS.>", "$JS.API.>", "$JS.hub.API.>", "$JS.ACK.>", "$JS.EVENT.>", "$JS.FC.>", "$JS.hub.>",
		"$O.>", "$KV.>", "$SYS.>", "$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT." + b + ".>", "$SYS.REQ.>", "$SYS.SERVER.>",
		"_R_.>", "_INBOX.>", "_GR_.>", "$LDS.>", "$NRG.>", "$SRV.>", "$MQTT.>",
	} {
		out = append(out, cell{name: "listen to " + s, listen: []string{s}})
	}
	for _, s := range []string{"tt.v1.from.*.sync", wire.WakeSubject(b), wire.AskSubject(b), wire.LocalAsk, "tt.v1.from.*.answer", "tt.ev.>", ">", "_R_.>"} {
		out = append(out, cell{name: "queue on " + s, listen: []string{s + " thieves"}})
	}
	return out
}

// publishing is the publish half: every subject that means something to the hub, with bodies that would do harm.
func publishing(w *world) []cell {
	b := w.b.Account
	var out []cell
	add := func(subject, body string) {
		out = append(out, cell{name: "publish " + subject, shots: []shot{{subject: subject, body: body}, {subject: subject, reply: inbox, body: body}}})
	}
	for _, s := range []string{
		"tt.ev.run.r1.forged", "tt.ev.machine.b.lost", "tt.hb.b", "tt.v1.events.run.r1.forged", "lax.one",
		wire.SyncSubject(b), wire.WakeSubject(b), wire.LocalWake, wire.WakeSubject(w.a.Account), "tt.v1.from.x.sync",
		wire.AnswerSubject(b), wire.AskSubject(b), wire.LocalAsk, wire.AskSubject(w.a.Account), "tt.v1.from.x.answer", wire.LocalAnswer,
		"$O.BLOBS.C.evil", "$O.BLOBS.M.evil", "$KV.CONF.k", "$JS.hub.API.$KV.CONF.k", "$JS.API.$KV.CONF.k",
		"_R_.abcdef.x", "_R_.>", "_GR_.a.b.c", "_INBOX.x", "$LDS.x", "$NRG.V.S.x", "$JS.EVENT.ADVISORY.API", "$JS.FC.EVENTS.x",
	} {
		add(s, "attack")
	}
	for _, prefix := range []string{"$JS.API.", "$JS.hub.API."} {
		for _, c := range api {
			add(prefix+c[0], c[1])
		}
	}
	for _, s := range []string{
		"SERVER.PING", "SERVER.PING.STATZ", "SERVER.PING.CONNZ", "SERVER.PING.VARZ", "SERVER.PING.JSZ", "SERVER.PING.LEAFZ",
		"ACCOUNT.PING.CONNZ", "ACCOUNT.PING.STATZ", "ACCOUNT." + b + ".CONNZ", "ACCOUNT." + b + ".INFO", "ACCOUNT." + b + ".SUBSZ",
		"ACCOUNT." + b + ".CLAIMS.LOOKUP", "CLAIMS.LIST", "CLAIMS.UPDATE", "CLAIMS.DELETE", "CLAIMS.PACK", "USER.INFO", "USER.AUTH", "DEBUG.SUBSCRIBERS",
	} {
		add("$SYS.REQ."+s, "{}")
	}
	add("$SYS.ACCOUNT."+b+".DISCONNECT", "{}")
	add("$SYS.ACCOUNT."+b+".CLAIMS.UPDATE", w.a.CurrentCredential())
	return out
}

// api are calls that read, change or destroy, with valid bodies.
var api = [][2]string{
	{"INFO", ""}, {"ACCOUNT.INFO", ""}, {"STREAM.LIST", ""}, {"STREAM.NAMES", ""},
	{"STREAM.CREATE.EVIL", `{"name":"EVIL","subjects":["evil.>"],"retention":"limits","storage":"memory","num_replicas":1,"max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"discard":"old"}`},
	{"STREAM.UPDATE.LAX", `{"name":"LAX","subjects":["lax.>","other.>"],"retention":"limits","storage":"file","num_replicas":1,"max_msgs":1}`},
	{"STREAM.INFO.EVENTS", ""}, {"STREAM.PURGE.LAX", ""}, {"STREAM.PURGE.OBJ_BLOBS", ""}, {"STREAM.DELETE.EVENTS", ""}, {"STREAM.DELETE.LAX", ""},
	{"STREAM.MSG.GET.EVENTS", `{"seq":1}`}, {"STREAM.MSG.DELETE.LAX", `{"seq":4}`}, {"STREAM.SNAPSHOT.EVENTS", `{"deliver_subject":"` + inbox + `"}`},
	{"STREAM.RESTORE.EVIL", `{"config":{"name":"EVIL"},"state":{}}`}, {"STREAM.PEER.REMOVE.EVENTS", `{"peer":"x"}`}, {"STREAM.LEADER.STEPDOWN.EVENTS", ""},
	{"DIRECT.GET.EVENTS", `{"seq":1}`}, {"DIRECT.GET.KV_CONF.$KV.CONF.k", ""}, {"DIRECT.GET.OBJ_BLOBS", `{"seq":1}`},
	{"CONSUMER.CREATE.EVENTS", `{"stream_name":"EVENTS","config":{"deliver_subject":"` + inbox + `","deliver_policy":"all","ack_policy":"none","replay_policy":"instant"}}`},
	{"CONSUMER.CREATE.EVENTS.evil", `{"stream_name":"EVENTS","config":{"name":"evil","deliver_policy":"all","ack_policy":"explicit","replay_policy":"instant"}}`},
	{"CONSUMER.DURABLE.CREATE.EVENTS.evil", `{"stream_name":"EVENTS","config":{"durable_name":"evil","deliver_policy":"all","ack_policy":"explicit","replay_policy":"instant"}}`},
	{"CONSUMER.LIST.EVENTS", ""}, {"CONSUMER.INFO.EVENTS.watch", ""}, {"CONSUMER.MSG.NEXT.EVENTS.watch", `{"batch":10,"no_wait":true}`},
	{"CONSUMER.PAUSE.EVENTS.watch", `{"pause_until":"2099-01-01T00:00:00Z"}`}, {"CONSUMER.UNPIN.EVENTS.watch", `{"group":"x"}`}, {"CONSUMER.RESET.EVENTS.watch", `{}`}, {"CONSUMER.DELETE.EVENTS.watch", ""},
	{"META.LEADER.STEPDOWN", ""}, {"SERVER.REMOVE", `{"peer":"hub"}`}, {"ACCOUNT.PURGE.x", ""},
}

// acknowledgements tries to settle the message that another consumer holds.
func acknowledgements(w *world) []cell {
	var out []cell
	for _, body := range []string{"", "+ACK", "+TERM", "-NAK", "+WPI", `+NXT {"batch":5}`} {
		out = append(out, cell{name: fmt.Sprintf("forge acknowledgement %q", body), shots: []shot{
			{subject: w.forged, body: body}, {subject: w.forged, reply: inbox, body: body},
			{subject: w.forged, reply: "tt.ev.run.r1.forged", body: body},
		}})
	}
	return out
}

// replies aims the hub's answers at others. The subject asked is the one thing the attacker may ask.
func replies(w *world) []cell {
	targets := []string{
		w.forged, "$JS.ACK.EVENTS.watch.>", "$JS.API.STREAM.PURGE.LAX", "$JS.hub.API.STREAM.PURGE.LAX", "$JS.API.CONSUMER.DELETE.EVENTS.watch",
		"tt.ev.run.r1.forged", "tt.v1.events.run.r1.forged", "lax.one", "$KV.CONF.k", "$O.BLOBS.C.evil",
		wire.SyncSubject(w.b.Account), wire.WakeSubject(w.b.Account), "$SYS.REQ.SERVER.PING", "_R_.abcdef.x", "_GR_.x", "$JS.EVENT.x", "hub.sync", "hub.wake",
	}
	ask := w.local(wire.LocalSync, wire.SyncSubject(w.a.Account))
	var out []cell
	for _, r := range targets {
		var shots []shot
		for _, body := range []string{"attack", "", "+TERM"} {
			shots = append(shots, shot{subject: ask, reply: r, body: body})
		}
		out = append(out, cell{name: "aim the answer at " + r, shots: shots})
	}
	// What predictions are answered by never replies, whatever it is asked to.
	tell := w.local(wire.LocalAnswer, wire.AnswerSubject(w.a.Account))
	for _, r := range append(targets, wire.AskSubject(w.b.Account), wire.AnswerSubject(w.b.Account), "hub.ask") {
		out = append(out, cell{name: "answer with a reply to " + r, shots: []shot{{subject: tell, reply: r, body: "attack"}, {subject: tell, reply: r}}})
	}
	for _, r := range []string{w.forged, "tt.ev.run.r1.forged", wire.WakeSubject(w.b.Account)} {
		out = append(out, cell{name: "aim JetStream's answer at " + r, shots: []shot{
			{subject: "$JS.API.INFO", reply: r}, {subject: "$JS.hub.API.INFO", reply: r},
			{subject: "$JS.API.CONSUMER.MSG.NEXT.EVENTS.watch", reply: r, body: `{"batch":1,"no_wait":true}`},
			{subject: "$JS.hub.API.DIRECT.GET.EVENTS", reply: r, body: `{"seq":1}`},
			{subject: "$SYS.REQ.USER.INFO", reply: r}, {subject: "$SYS.REQ.ACCOUNT.PING.CONNZ", reply: r},
		}})
	}
	return out
}

// headers carry orders for JetStream; they ride on subjects of streams and on the one allowed request.
func headers(w *world) []cell {
	lines := []string{
		"Nats-Rollup: all", "Nats-Rollup: sub",
		"Nats-Schedule: @at 1970-01-01T00:00:00Z|Nats-Schedule-Target: lax.two", "Nats-Schedule: @every 1s|Nats-Schedule-Target: tt.ev.run.r1.forged",
		"Nats-Batch-Id: evil|Nats-Batch-Sequence: 1|Nats-Batch-Commit: 1", "Nats-Batch-Id: evil|Nats-Batch-Sequence: 1",
		"Nats-Msg-Id: canary", "Nats-TTL: 1s", "Nats-Expected-Last-Sequence: 1", "Nats-Incr: +1",
		"Nats-Trace-Dest: tt.ev.run.r1.forged", "Nats-Trace-Dest: " + wire.WakeSubject(w.b.Account),
		`Nats-Request-Info: {"acc":"` + w.b.Account + `","svc":"` + w.b.Account + `"}`, "Nats-Marker-Reason: Purge", "KV-Operation: PURGE",
	}
	var out []cell
	for _, l := range lines {
		h := strings.ReplaceAll(l, "|", "\r\n") + "\r\n"
		var shots []shot
		for _, s := range []string{"lax.one", "tt.ev.run.r1.forged", "$KV.CONF.k", "$O.BLOBS.M.evil", w.local(wire.LocalSync, "lax.one"), w.local(wire.LocalAnswer, "lax.two")} {
			shots = append(shots, shot{subject: s, header: h, body: "attack"}, shot{subject: s, reply: inbox, header: h, body: "attack"})
		}
		out = append(out, cell{name: "header " + l, shots: shots})
	}
	return out
}
