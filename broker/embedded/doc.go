// Package embedded runs nats-server inside our process, as the hub's broker and as an agent's leafnode. It is the only
// importer of nats-server, whose Go API changes between minor versions.
//
// It knows no machine, no run and no key: accounts and users come to it as finished JWTs with a function that signs
// (broker/identity makes them). It opens no public port: the hub's listeners are on loopback, and broker/gateway's front
// passes WebSocket upgrades under /nats to WebsocketAddr. cmd starts and stops it.
//
// Dependencies: nats-server and nats.go are the product's backbone; gofrs/flock is the portable file lock; zerolog is
// the logger of the whole program; renameio replaces files at once; minio/highwayhash is the checksum that nats-server writes.
package embedded
