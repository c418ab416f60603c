"""x86-64's machine code for runs that Python calls; see `builtin_run.py`."""

from __future__ import annotations

CODE = (
    # run: PyObject *run(PyObject *self, PyObject *const *addresses, Py_ssize_t count)
    "53"  #                  push rbx
    "55"  #                  push rbp
    "4154"  #                push r12
    "4155"  #                push r13
    "4156"  #                push r14
    "4989f4"  #              mov r12, rsi
    "4989d5"  #              mov r13, rdx
    "ff15cc000000"  #        call qword [rip+as_pointer]
    "4889c3"  #              mov rbx, rax
    "31c0"  #                xor eax, eax
    "b901000000"  #          mov ecx, 1
    "f00fb14b08"  #          lock cmpxchg dword [rbx+8], ecx
    "7575"  #                jne taken
    # mine: write the addresses to io
    "488b6b20"  #            mov rbp, qword [rbx+32]
    # address:
    "49ffcd"  #              dec r13
    "7811"  #                js ready
    "4b8b3cec"  #            mov rdi, qword [r12+r13*8]
    "ff15a8000000"  #        call qword [rip+as_pointer]
    "4a8944ed00"  #          mov qword [rbp+r13*8], rax
    "ebea"  #                jmp address
    # ready: run, without the interpreter's lock
    "ff15a3000000"  #        call qword [rip+save]
    "4889c5"  #              mov rbp, rax
    "488b7b10"  #            mov rdi, qword [rbx+16]
    "488b7318"  #            mov rsi, qword [rbx+24]
    "488b5320"  #            mov rdx, qword [rbx+32]
    "488b4b28"  #            mov rcx, qword [rbx+40]
    "4c8b4330"  #            mov r8, qword [rbx+48]
    "ff13"  #                call qword [rbx]
    "4989c4"  #              mov r12, rax
    "31c0"  #                xor eax, eax
    "874308"  #              xchg dword [rbx+8], eax
    "83f802"  #              cmp eax, 2
    "7515"  #                jne free
    "488d7b08"  #            lea rdi, [rbx+8]
    "be81000000"  #          mov esi, 129
    "ba01000000"  #          mov edx, 1
    "b8ca000000"  #          mov eax, 202
    "0f05"  #                syscall
    # free:
    "4889ef"  #              mov rdi, rbp
    "ff1567000000"  #        call qword [rip+restore]
    "4c89e7"  #              mov rdi, r12
    "415e"  #                pop r14
    "415d"  #                pop r13
    "415c"  #                pop r12
    "5d"  #                  pop rbp
    "5b"  #                  pop rbx
    "ff255e000000"  #        jmp qword [rip+from_number]
    # taken: another thread runs it: sleep until it has ended
    "ff1548000000"  #        call qword [rip+save]
    "4889c5"  #              mov rbp, rax
    # wait:
    "b802000000"  #          mov eax, 2
    "874308"  #              xchg dword [rbx+8], eax
    "85c0"  #                test eax, eax
    "741a"  #                je given
    "488d7b08"  #            lea rdi, [rbx+8]
    "be80000000"  #          mov esi, 128
    "ba02000000"  #          mov edx, 2
    "4531d2"  #              xor r10d, r10d
    "b8ca000000"  #          mov eax, 202
    "0f05"  #                syscall
    "ebda"  #                jmp wait
    # given:
    "4889ef"  #              mov rdi, rbp
    "ff151e000000"  #        call qword [rip+restore]
    "e94effffff"  #          jmp mine
    # closed: long long closed(void)
    "4883c8ff"  #            or rax, -1
    "c3"  #                  ret
    "cccccccc"  #            (to a multiple of 8)
)
CLOSED = 215
"""Offset of the function behind it."""
