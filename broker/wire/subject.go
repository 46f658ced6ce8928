package wire

import "strings"

// Subjects of the hub's service account. The server writes the caller's account into the subject of a service import
// (AccountTokenPosition), so the token is the caller's identity: no payload, header or reply subject can forge it.
const (
	// SyncSubjects is what the hub's service subscribes to.
	SyncSubjects = "tt.v1.from.*.sync"
	// WakeSubjects is what the hub's account exports.
	WakeSubjects = "tt.v1.to.*.wake"
	// AskSubjects is what the hub's account exports: predictions that a machine is asked for.
	AskSubjects = "tt.v1.to.*.ask"
	// AnswerSubjects is where the hub hears what machines predict. It is a service, so that the server writes the caller's
	// account into the subject, and one that never replies: an answer belongs to its question by an id inside of it.
	AnswerSubjects = "tt.v1.from.*.answer"
	// AccountToken is the place of the account in all of them, counted from 1.
	AccountToken = 4

	fromHead, syncTail, answerTail = "tt.v1.from.", ".sync", ".answer"
)

// SyncSubject is where the hub hears the machine with this account.
func SyncSubject(account string) string { return fromHead + account + syncTail }

// WakeSubject is where the hub hints to the machine with this account.
func WakeSubject(account string) string { return "tt.v1.to." + account + ".wake" }

// AccountOfSync reads the caller's account out of a subject that SyncSubjects matched; ok is false for anything that
// does not look like a public account nkey.
func AccountOfSync(subject string) (account string, ok bool) { return accountOf(subject, syncTail) }

// AskSubject is where the hub asks the machine with this account for predictions.
func AskSubject(account string) string { return "tt.v1.to." + account + ".ask" }

// AnswerSubject is where the hub hears what the machine with this account predicts.
func AnswerSubject(account string) string { return fromHead + account + answerTail }

// AccountOfAnswer reads the caller's account out of a subject that AnswerSubjects matched, as AccountOfSync does.
func AccountOfAnswer(subject string) (account string, ok bool) {
	return accountOf(subject, answerTail)
}

func accountOf(subject, tail string) (account string, ok bool) {
	account, began := strings.CutPrefix(subject, fromHead)
	account, ended := strings.CutSuffix(account, tail)
	return account, began && ended && isAccountKey(account)
}

// isAccountKey checks the shape of a public account nkey: 'A' and 55 more characters of base32.
func isAccountKey(s string) bool {
	if len(s) != 56 || s[0] != 'A' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// AcceptReply reports whether a handler may answer to this reply subject. A leafnode peer chooses its reply freely, and
// nats-server passes one that begins with "$JS." unchanged into the handler's account: an answer would then be an
// acknowledgement of somebody's message, or a call of the JetStream API with the hub's rights. An honest import gives a
// reply under "_R_." made by the server; in-process callers of the same account use "_INBOX.". All else is dropped. The
// second half of the rule is the handler's: an answer is never empty and never an echo, because an empty body and a
// caller's bytes both can be acknowledgements.
func AcceptReply(reply string) bool {
	return strings.HasPrefix(reply, "_R_.") || strings.HasPrefix(reply, "_INBOX.")
}
