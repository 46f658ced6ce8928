package main

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"

	"tensorturn/domain"
)

// hasher is a SHA-256 that gives its sum as a digest.
type hasher struct{ hash.Hash }

func newHash() hasher { return hasher{sha256.New()} }

func (h hasher) digest() domain.Digest { return domain.Digest(hex.EncodeToString(h.Sum(nil))) }
