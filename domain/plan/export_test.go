package plan

import "tensorturn/domain"

// NextOfAll is Next with a board of every slot for every run, also for those that mayAct leaves out.
func NextOfAll(s Snapshot) []Action {
	var out []Action
	s.each(true, func(b *board, _ []domain.RunID) {
		b.plan()
		out = append(out, b.out...)
	})
	return out
}
