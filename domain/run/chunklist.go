package run

import (
	"slices"

	"tensorturn/domain"
)

// without removes gone from list, in place, keeping the order of the rest. Chunks leave lists nearly always as a head,
// a tail or one by one from the head, which costs nothing or little; otherwise one pass over the list.
func without(list, gone []domain.ChunkID) []domain.ChunkID {
	n, k := len(list), len(gone)
	switch {
	case k == 0:
		return list
	case k <= n && slices.Equal(list[:k], gone):
		return list[k:]
	case k <= n && slices.Equal(list[n-k:], gone):
		return list[:n-k]
	case k == 1:
		if i := slices.Index(list, gone[0]); i >= 0 {
			return slices.Delete(list, i, i+1)
		}
		return list
	}
	set := setOf(gone)
	return slices.DeleteFunc(list, func(c domain.ChunkID) bool { return set[c] })
}

// setOf makes a set for questions; nobody walks over it.
func setOf(cs []domain.ChunkID) map[domain.ChunkID]bool {
	set := make(map[domain.ChunkID]bool, len(cs))
	for _, c := range cs {
		set[c] = true
	}
	return set
}

// except lists what of list is not in the set, in list's order.
func except(list []domain.ChunkID, set map[domain.ChunkID]bool) []domain.ChunkID {
	var rest []domain.ChunkID
	for _, c := range list {
		if !set[c] {
			rest = append(rest, c)
		}
	}
	return rest
}
