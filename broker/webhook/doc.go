// Package webhook sends events to other systems over HTTP, signed as Standard Webhooks (standardwebhooks.com) say. Each
// hook is one goroutine with a place of its own in the log, kept in a file beside its secret; it sends one event after the
// other and goes on when the receiver has taken it, so that an outage of the receiver or the hub loses nothing.
//
// It never follows a redirect, never uses a proxy and never tells what a receiver answered, so that a hook is no way to look
// around in the hub's network: see address.go. Events come from broker/feed's Source; broker/gateway creates and lists
// hooks; cmd starts and stops it.
package webhook
