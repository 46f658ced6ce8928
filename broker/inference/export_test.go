package inference

// Queued is the number of rows that wait for any model.
func Queued(e *Engine) (rows int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.models {
		if l.unit != nil {
			l.unit.mu.Lock()
			rows += l.unit.rows
			l.unit.mu.Unlock()
		}
	}
	return rows
}
