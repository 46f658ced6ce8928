package merge

import (
	"testing"

	"tensorturn/test/exact"
)

const fused = "./testdata/fused"

func TestNoFusedInstruction(t *testing.T)    { exact.NoFusedInstruction(t, fused) }
func TestEveryProductIsWrapped(t *testing.T) { exact.EveryProductIsWrapped(t, fused) }
