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
    "ff1514010000"  #        call qword [rip+as_pointer]
    "4889c3"  #              mov rbx, rax
    "31c0"  #                xor eax, eax
    "b901000000"  #          mov ecx, 1
    "f00fb14b08"  #          lock cmpxchg dword [rbx+8], ecx
    "0f85ba000000"  #        jne taken
    # mine: write the addresses to io
    "488b6b20"  #            mov rbp, qword [rbx+32]
    # address:
    "49ffcd"  #              dec r13
    "781e"  #                js ready
    "4b8b3cec"  #            mov rdi, qword [r12+r13*8]
    "ff15ec000000"  #        call qword [rip+as_pointer]
    "4c89e9"  #              mov rcx, r13
    "483b4b38"  #            cmp rcx, qword [rbx+56]
    "7c04"  #                jl write
    "48034b40"  #            add rcx, qword [rbx+64]
    # write: outputs lie behind the states
    "488944cd00"  #          mov qword [rbp+rcx*8], rax
    "ebdd"  #                jmp address
    # ready: run, without the interpreter's lock
    "ff15da000000"  #        call qword [rip+save]
    "4889c5"  #              mov rbp, rax
    "488b7b10"  #            mov rdi, qword [rbx+16]
    "488b7318"  #            mov rsi, qword [rbx+24]
    "488b5320"  #            mov rdx, qword [rbx+32]
    "488b4b28"  #            mov rcx, qword [rbx+40]
    "4c8b4330"  #            mov r8, qword [rbx+48]
    "ff13"  #                call qword [rbx]
    "4989c4"  #              mov r12, rax
    "4885c0"  #              test rax, rax
    "7533"  #                jne ended
    "48ff4350"  #            inc qword [rbx+80]
    "488b4b40"  #            mov rcx, qword [rbx+64]
    "488b4320"  #            mov rax, qword [rbx+32]
    "488b7338"  #            mov rsi, qword [rbx+56]
    "488d34f0"  #            lea rsi, [rax+rsi*8]
    "488b7b48"  #            mov rdi, qword [rbx+72]
    "488d3cf8"  #            lea rdi, [rax+rdi*8]
    # swap: next states become the current ones
    "48ffc9"  #              dec rcx
    "7812"  #                js ended
    "488b04ce"  #            mov rax, qword [rsi+rcx*8]
    "488b14cf"  #            mov rdx, qword [rdi+rcx*8]
    "488914ce"  #            mov qword [rsi+rcx*8], rdx
    "488904cf"  #            mov qword [rdi+rcx*8], rax
    "ebe9"  #                jmp swap
    # ended:
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
    "ff1566000000"  #        call qword [rip+restore]
    "4c89e7"  #              mov rdi, r12
    "415e"  #                pop r14
    "415d"  #                pop r13
    "415c"  #                pop r12
    "5d"  #                  pop rbp
    "5b"  #                  pop rbx
    "ff255d000000"  #        jmp qword [rip+from_number]
    # taken: another thread runs it: sleep until it has ended
    "ff1547000000"  #        call qword [rip+save]
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
    "ff151d000000"  #        call qword [rip+restore]
    "e909ffffff"  #          jmp mine
    # idle: long long idle(void)
    "4883c8ff"  #            or rax, -1
    "c3"  #                  ret
    "cccccc"  #            (to a multiple of 8)
)
IDLE = 288
"""Offset of the function behind it."""
