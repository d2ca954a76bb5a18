// Package execjob runs jobs that are commands: their setting exec names a program, or a script for a shell.
//
// It is not promised to programs outside this module.
//
// Where to start: [Runner.Run], which is given to worker.Config.Others; run.go for the life of a process;
// cgroup_linux.go for cgroups.
//
// Sharp edges: what may run is decided here, by [Config.Allow], and not by who defines jobs. A program that runs
// others (a shell, env, python) allows all of them. A command gets none of the worker's environment but a few harmless
// variables and those of [Config.Pass].
package execjob
