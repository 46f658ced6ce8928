// Package broker holds the two ports to durable storage, Log and Blobs, and the committer that turns decided events
// into records: one atomic batch, one sync, an expected last sequence, and an answer only after the acknowledgement.
//
// broker/jetstream and broker/memory implement the ports; broker/brokertest is the suite both must pass.
package broker
