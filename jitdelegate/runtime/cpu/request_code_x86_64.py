"""x86-64's machine code for native requests; see `request_code.py`."""

from __future__ import annotations

CODE = (
    # worker: void *worker(struct *), for pthread_create
    "53"  #                    push rbx
    "55"  #                    push rbp
    "4154"  #                  push r12
    "4155"  #                  push r13
    "4156"  #                  push r14
    "4157"  #                  push r15
    "4883ec18"  #              sub rsp, 24
    "4889fb"  #                mov rbx, rdi
    "488b2b"  #                mov rbp, qword [rbx]
    # next:
    "4531f6"  #                xor r14d, r14d
    # look: is there a request that nobody has taken? The flag is read first: whoever sets it has submitted before, so
    # that a thread which read the counters first might leave a request behind
    "8b85c0000000"  #          mov eax, dword [rbp+192]
    "83f802"  #                cmp eax, 2
    "0f839f010000"  #          jae leave
    "4c8b6d40"  #              mov r13, qword [rbp+64]
    "4c3b6d00"  #              cmp r13, qword [rbp+0]
    "7c4b"  #                  jl take
    "85c0"  #                  test eax, eax
    "0f858d010000"  #          jne leave
    "41ffc6"  #                inc r14d
    "4181fee8030000"  #        cmp r14d, 1000
    "7704"  #                  ja doze
    "f390"  #                  pause
    "ebcf"  #                  jmp look
    # doze:
    "f0ff4508"  #              lock inc dword [rbp+8]
    "8b550c"  #                mov edx, dword [rbp+12]
    "488b4500"  #              mov rax, qword [rbp+0]
    "48394540"  #              cmp qword [rbp+64], rax
    "7c1c"  #                  jl awake
    "83bdc000000000"  #        cmp dword [rbp+192], 0
    "7513"  #                  jne awake
    "488d7d0c"  #              lea rdi, [rbp+12]
    "be80000000"  #            mov esi, 128
    "4531d2"  #                xor r10d, r10d
    "b8ca000000"  #            mov eax, 202
    "0f05"  #                  syscall
    # awake:
    "f0ff4d08"  #              lock dec dword [rbp+8]
    "eb99"  #                  jmp next
    # take: take the request, if no other worker was faster
    "4c89e8"  #                mov rax, r13
    "498d5501"  #              lea rdx, [r13+1]
    "f0480fb15540"  #          lock cmpxchg qword [rbp+64], rdx
    "758d"  #                  jne look
    "4d89ef"  #                mov r15, r13
    "4c237b20"  #              and r15, qword [rbx+32]
    "4c0faf7b18"  #            imul r15, qword [rbx+24]
    "4e8dbc3d00010000"  #      lea r15, [rbp+r15*1+256]
    "4d8d6720"  #              lea r12, [r15+32]
    "4d8b7710"  #              mov r14, qword [r15+16]
    # event: wait for each event
    "49ffce"  #                dec r14
    "7872"  #                  js ready
    "498b3c24"  #              mov rdi, qword [r12]
    "498b742408"  #            mov rsi, qword [r12+8]
    # again:
    "31c9"  #                  xor ecx, ecx
    # spin:
    "483937"  #                cmp qword [rdi], rsi
    "7d52"  #                  jge happened
    "8b85c0000000"  #          mov eax, dword [rbp+192]
    "413b442410"  #            cmp eax, dword [r12+16]
    "774b"  #                  ja abandon
    "ffc1"  #                  inc ecx
    "81f9e8030000"  #          cmp ecx, 1000
    "7704"  #                  ja sleep
    "f390"  #                  pause
    "ebe0"  #                  jmp spin
    # sleep: for 50 ms at most, since events of others do not know the stop flag
    "f0ff4708"  #              lock inc dword [rdi+8]
    "488b17"  #                mov rdx, qword [rdi]
    "4839f2"  #                cmp rdx, rsi
    "7d25"  #                  jge woken
    "48c7042400000000"  #      mov qword [rsp], 0
    "48c744240880f0fa02"  #    mov qword [rsp+8], 50000000
    "4989e2"  #                mov r10, rsp
    "be80000000"  #            mov esi, 128
    "b8ca000000"  #            mov eax, 202
    "0f05"  #                  syscall
    "498b742408"  #            mov rsi, qword [r12+8]
    # woken:
    "f0ff4f08"  #              lock dec dword [rdi+8]
    "eba7"  #                  jmp again
    # happened:
    "4983c418"  #              add r12, 24
    "eb93"  #                  jmp event
    # abandon:
    "49c7470801000000"  #      mov qword [r15+8], 1
    "eb4b"  #                  jmp done
    # ready: copy the addresses to io, and run
    "4c89e6"  #                mov rsi, r12
    "488b7b38"  #              mov rdi, qword [rbx+56]
    "488b4b10"  #              mov rcx, qword [rbx+16]
    "f348a5"  #                rep movsq
    "4989f4"  #                mov r12, rsi
    "488b7b28"  #              mov rdi, qword [rbx+40]
    "488b7330"  #              mov rsi, qword [rbx+48]
    "488b5338"  #              mov rdx, qword [rbx+56]
    "488b4b40"  #              mov rcx, qword [rbx+64]
    "4c8b4348"  #              mov r8, qword [rbx+72]
    "ff5308"  #                call qword [rbx+8]
    "49894708"  #              mov qword [r15+8], rax
    "4d8b7718"  #              mov r14, qword [r15+24]
    # copy: copy outputs that could not be written in place
    "49ffce"  #                dec r14
    "7816"  #                  js done
    "498b3c24"  #              mov rdi, qword [r12]
    "498b742408"  #            mov rsi, qword [r12+8]
    "498b4c2410"  #            mov rcx, qword [r12+16]
    "f3a4"  #                  rep movsb
    "4983c418"  #              add r12, 24
    "ebe5"  #                  jmp copy
    # done: leave the mark; then publish in order, also requests of faster workers
    "498d4501"  #              lea rax, [r13+1]
    "498707"  #                xchg qword [r15], rax
    # publish:
    "488b8580000000"  #        mov rax, qword [rbp+128]
    "4889c2"  #                mov rdx, rax
    "48235320"  #              and rdx, qword [rbx+32]
    "480faf5318"  #            imul rdx, qword [rbx+24]
    "488d4801"  #              lea rcx, [rax+1]
    "48398c1500010000"  #      cmp qword [rbp+rdx*1+256], rcx
    "750b"  #                  jne published
    "f0480fb18d80000000"  #    lock cmpxchg qword [rbp+128], rcx
    "ebd4"  #                  jmp publish
    # published:
    "83bd8800000000"  #        cmp dword [rbp+136], 0
    "0f846cfeffff"  #          je next
    "488dbd80000000"  #        lea rdi, [rbp+128]
    "be81000000"  #            mov esi, 129
    "baffffff7f"  #            mov edx, 0x7fffffff
    "b8ca000000"  #            mov eax, 202
    "0f05"  #                  syscall
    "e94ffeffff"  #            jmp next
    # leave:
    "4883c418"  #              add rsp, 24
    "415f"  #                  pop r15
    "415e"  #                  pop r14
    "415d"  #                  pop r13
    "415c"  #                  pop r12
    "5d"  #                    pop rbp
    "5b"  #                    pop rbx
    "31c0"  #                  xor eax, eax
    "c3"  #                    ret
    # wait: int wait(word, value, timespec or null): 0 once the word has reached the value
    "31c9"  #                  xor ecx, ecx
    # wait_spin:
    "483937"  #                cmp qword [rdi], rsi
    "7d43"  #                  jge reached
    "ffc1"  #                  inc ecx
    "81f9c8000000"  #          cmp ecx, 200
    "7704"  #                  ja wait_sleep
    "f390"  #                  pause
    "ebed"  #                  jmp wait_spin
    # wait_sleep:
    "4989f0"  #                mov r8, rsi
    "4989d2"  #                mov r10, rdx
    "f0ff4708"  #              lock inc dword [rdi+8]
    # wait_check:
    "488b17"  #                mov rdx, qword [rdi]
    "4c39c2"  #                cmp rdx, r8
    "7d1f"  #                  jge wait_reached
    "be80000000"  #            mov esi, 128
    "b8ca000000"  #            mov eax, 202
    "0f05"  #                  syscall
    "4d85d2"  #                test r10, r10
    "7509"  #                  jne wait_ended
    "85c0"  #                  test eax, eax
    "74e3"  #                  je wait_check
    "83f8f5"  #                cmp eax, 0xfffffff5
    "74de"  #                  je wait_check
    # wait_ended:
    "f0ff4f08"  #              lock dec dword [rdi+8]
    "c3"  #                    ret
    # wait_reached:
    "f0ff4f08"  #              lock dec dword [rdi+8]
    # reached:
    "31c0"  #                  xor eax, eax
    "c3"  #                    ret
    # ring: void ring(control): another request is there
    "f048ff07"  #              lock inc qword [rdi]
    "f0ff470c"  #              lock inc dword [rdi+12]
    "837f0800"  #              cmp dword [rdi+8], 0
    "7415"  #                  je rung
    "4883c70c"  #              add rdi, 12
    "be81000000"  #            mov esi, 129
    "ba01000000"  #            mov edx, 1
    "b8ca000000"  #            mov eax, 202
    "0f05"  #                  syscall
    # rung:
    "c3"  #                    ret
    # stop: void stop(control, level)
    "87b7c0000000"  #          xchg dword [rdi+192], esi
    "f0ff470c"  #              lock inc dword [rdi+12]
    "4883c70c"  #              add rdi, 12
    "eb0e"  #                  jmp wake
    # tell: void tell(word, value): set the word and wake who waits for it
    "488937"  #                mov qword [rdi], rsi
    "f0830c2400"  #            lock or dword [rsp], 0
    "837f0800"  #              cmp dword [rdi+8], 0
    "7411"  #                  je quiet
    # wake:
    "be81000000"  #            mov esi, 129
    "baffffff7f"  #            mov edx, 0x7fffffff
    "b8ca000000"  #            mov eax, 202
    "0f05"  #                  syscall
    # quiet:
    "c3"  #                    ret
    # order: void order(): what is read from now on is read after what was read before, which is always so
    "c3"  #                    ret
)
WAIT, RING, STOP, TELL, ORDER = 470, 547, 583, 599, 631
"""Offsets of the functions behind the loop."""
