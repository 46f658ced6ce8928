// Package pool is the pool of one owner as an event-sourced aggregate: its founding, its join tokens, its observers
// (other systems that read events), its API keys and its deployed models. Secrets never enter: a token or a key is an
// accessor id and the SHA-256 of its secret, an observer the public keys of its account and user.
//
// Who may cause what: first start Found; operator CreateToken, RevokeToken, CreateObserver, RevokeObserver, CreateKey,
// RevokeKey, DeployModel, RollBackModel, RetireModel; the front CountInference, a minute after the fact; enrolment
// UseToken (in one batch with machine.Enrol, so that a token is used if and only if a machine came of it).
//
// A refused token says no more than its bearer may know: without the right secret, a token that exists looks like one
// that does not. With it, the text says whether it is used up, expired or revoked. The kind is always domain.KindDenied.
package pool
