package domain

import "errors"

// Kind sorts errors by what the caller can do about them. Exit codes, HTTP statuses and wire codes are each made
// from it in one table at their edge.
type Kind string

// The kinds of error.
const (
	KindInvalid     Kind = "invalid"     // the input is wrong; sending it again cannot help
	KindNotFound    Kind = "not_found"   // the named thing does not exist
	KindDenied      Kind = "denied"      // the caller may not
	KindConflict    Kind = "conflict"    // the state forbids it, or another writer was faster
	KindFenced      Kind = "fenced"      // an old epoch: the lease has moved on
	KindUnavailable Kind = "unavailable" // try again later: disk full, hub starting, link lost
	KindIntegrity   Kind = "integrity"   // stored bytes are not what was written
	KindInternal    Kind = "internal"    // a broken promise of our own code
)

// Error tells a story once: what failed, why, and what to do next.
type Error struct {
	Kind Kind
	Op   string // what failed: "submit run r-1"
	Why  string // the reason, without the operation
	Next string // what the person can do, may be empty
	Err  error  // cause, may be nil
}

// Error gives "op: why". The hint is separate, so that a person's screen can set it apart.
func (e *Error) Error() string {
	s := e.Why
	if e.Op != "" {
		s = e.Op + ": " + e.Why
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Invalid is a refusal of bad input.
func Invalid(op, why, next string) *Error {
	return &Error{Kind: KindInvalid, Op: op, Why: why, Next: next}
}

// NotFound is a refusal for a thing that does not exist.
func NotFound(op, why, next string) *Error {
	return &Error{Kind: KindNotFound, Op: op, Why: why, Next: next}
}

// Denied is a refusal for a caller without the right.
func Denied(op, why, next string) *Error {
	return &Error{Kind: KindDenied, Op: op, Why: why, Next: next}
}

// Conflict is a refusal because of the present state.
func Conflict(op, why, next string) *Error {
	return &Error{Kind: KindConflict, Op: op, Why: why, Next: next}
}

// Fenced is a refusal of an old epoch.
func Fenced(op, why string) *Error { return &Error{Kind: KindFenced, Op: op, Why: why} }

// Unavailable is a failure that time may heal.
func Unavailable(op, why, next string, err error) *Error {
	return &Error{Kind: KindUnavailable, Op: op, Why: why, Next: next, Err: err}
}

// Integrity says that stored bytes are not what was written.
func Integrity(op, why, next string) *Error {
	return &Error{Kind: KindIntegrity, Op: op, Why: why, Next: next}
}

// KindOf finds the kind anywhere in the chain; an error of no kind is internal, nil is "".
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindInternal
}

// NextOf finds the first hint in the chain.
func NextOf(err error) string {
	var e *Error
	for errors.As(err, &e) {
		if e.Next != "" {
			return e.Next
		}
		err = e.Err
	}
	return ""
}

// Assert panics with a sentence when a promise of our own code is broken. The supervisor restarts the process and
// the log is the truth.
func Assert(ok bool, sentence string) {
	if !ok {
		panic("broken promise: " + sentence)
	}
}
