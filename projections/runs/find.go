package runs

import (
	"strings"

	"tensorturn/domain"
)

// Find gives the ids of the runs that key may mean, oldest first: the run with that id, else the runs of that name, else
// those whose id begins with it. Exactly one means that the run is found.
func (v *View) Find(key string) []domain.RunID {
	if _, ok := v.byID[domain.RunID(key)]; ok {
		return []domain.RunID{domain.RunID(key)}
	}
	if key == "" {
		return nil
	}
	var named, begun []domain.RunID
	for _, id := range v.order {
		if v.byID[id].Name == key {
			named = append(named, id)
		}
		if strings.HasPrefix(string(id), key) {
			begun = append(begun, id)
		}
	}
	if len(named) > 0 {
		return named
	}
	return begun
}
