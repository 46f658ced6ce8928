// Package identity makes, keeps and checks who is who: the hub's directory of keys (NATS operator and accounts, CA,
// server certificate, the key that signs log heads), operator keys, join tokens, one NATS account per machine, the
// machines' short-lived credentials, and the agent's own key file.
//
// It never opens a connection, never starts a server and never decides who may join: broker/hub decides, broker/gateway
// and cmd call it at the hub, agent and cmd at a machine, and broker/embedded is handed the finished JWTs. It therefore
// imports neither nats-server nor nats.go.
//
// Dependencies: nkeys and jwt/v2 are NATS's own formats, which a stock server must accept; renameio writes a file in
// one step with its mode, on every file system we meet.
//
// Secrets leave this package only through functions whose names say so (Seed, Plain, Secret); no error holds one.
package identity
