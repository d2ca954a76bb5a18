package api

// Forgive forgets wrong tries, for tests that make more of them than anybody may.
func (a *Access) Forgive() {
	a.wrong.mu.Lock()
	defer a.wrong.mu.Unlock()
	a.wrong.of = nil
}
