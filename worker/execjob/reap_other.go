//go:build !linux

package execjob

// reap waits for the end of a command and kills what it left behind.
func reap(p *process) error {
	err := p.cmd.Wait()
	p.kill()
	p.gone()
	return err
}
