// What somebody with the right may do to a gate, each said before it is done.

export class Actions {
  draw() {}
}
