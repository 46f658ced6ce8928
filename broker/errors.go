package broker

import "fmt"

// ConflictError says that the log's last sequence was not the expected one.
type ConflictError struct {
	Expected uint64
	Actual   uint64 // 0 when the store did not say
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("append behind sequence %d: the log's last is %d", e.Expected, e.Actual)
}
