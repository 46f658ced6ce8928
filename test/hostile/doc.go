// Package hostile holds the matrix of what a machine with a valid credential may try against the hub and the other
// machines: subjects × (publish, subscribe), replies, headers, acknowledgements and names, from a stock client, from a
// hand-written WebSocket client and from a hand-written leafnode peer. Every cell asserts that nothing foreign was read,
// written or cut. The positive control runs the same attacks against a pool that is weak on purpose, and must see damage.
//
// It holds tests only; package pool beside it builds the hub they attack.
package hostile
